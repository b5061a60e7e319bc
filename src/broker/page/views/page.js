"use strict";
// Fetches the changing part of the page again and again. The page works without this script, too.
(() => {
  const SECONDS = 5;
  const live = document.getElementById("live");
  const said = document.getElementById("freshness");
  const button = document.getElementById("pause");
  const address = new URL(location.href);
  address.searchParams.set("fragment", "1");
  address.hash = "";
  let isPaused = false;
  let isAsking = false;

  const say = (text) => { if (said.textContent !== text) said.textContent = text; };

  // The element that has the focus is replaced: the same link in the new part gets the focus.
  const place = () => {
    const focused = document.activeElement;
    return live.contains(focused) && focused.getAttribute("href");
  };

  const refresh = async () => {
    if (isPaused || isAsking || document.hidden || String(getSelection())) return;
    isAsking = true;
    try {
      const answer = await fetch(address, {cache: "no-store", redirect: "error",
        signal: AbortSignal.timeout(4000)});
      if (!answer.ok) throw new Error(String(answer.status));
      const html = await answer.text();
      const href = place();
      live.innerHTML = html;
      if (href) {
        const links = [...live.querySelectorAll("a")];
        links.find((one) => one.getAttribute("href") === href)?.focus({preventScroll: true});
      }
      say(`Refreshed every ${SECONDS} s`);
    } catch {
      say("The broker does not answer");
    } finally {
      isAsking = false;
    }
  };

  button.hidden = false;
  say(`Refreshed every ${SECONDS} s`);
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Continue" : "Pause";
    say(isPaused ? "Paused" : `Refreshed every ${SECONDS} s`);
    refresh();
  });
  setInterval(refresh, SECONDS * 1000);
})();
