package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupTopic, partitions = "go-group", 4

// member is one consumer of the group, with its share and what it has read.
type member struct {
	client   *kgo.Client
	lock     sync.Mutex
	share    map[int32]bool
	revoked  []int32
	read     []string
	finished chan struct{}
}

func join(ctx context.Context, servers, name string) *member {
	one := &member{share: map[int32]bool{}, finished: make(chan struct{})}
	lose := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
		one.lock.Lock()
		defer one.lock.Unlock()
		for _, partition := range lost[groupTopic] {
			delete(one.share, partition)
			one.revoked = append(one.revoked, partition)
		}
	}
	one.client = connect(servers, kgo.ConsumerGroup("go-group"), kgo.ConsumeTopics(groupTopic),
		kgo.ClientID(name), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsRevoked(lose),
		kgo.OnPartitionsLost(lose),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			one.lock.Lock()
			defer one.lock.Unlock()
			for _, partition := range added[groupTopic] {
				one.share[partition] = true
			}
		}))
	go one.run(ctx)
	return one
}

// run polls until the client is closed, and commits what it has read.
func (one *member) run(ctx context.Context) {
	defer close(one.finished)
	for {
		fetches := one.client.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			one.lock.Lock()
			one.read = append(one.read, string(record.Value))
			one.lock.Unlock()
		})
		check(one.client.CommitUncommittedOffsets(ctx))
		one.client.AllowRebalance()
	}
}

func (one *member) state() ([]int32, []int32, []string) {
	one.lock.Lock()
	defer one.lock.Unlock()
	var share []int32
	for partition := range one.share {
		share = append(share, partition)
	}
	return share, slices.Clone(one.revoked), slices.Clone(one.read)
}

func (one *member) leave() {
	one.client.CloseAllowingRebalance()
	<-one.finished
}

func until(ctx context.Context, what string, holds func() bool) {
	for !holds() {
		if ctx.Err() != nil {
			panic("waited in vain for " + what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func fill(ctx context.Context, client *kgo.Client, from int) {
	for number := from; number < from+count; number++ {
		record := kgo.KeyStringRecord("k", fmt.Sprint(number))
		record.Topic, record.Partition = groupTopic, int32(number%partitions)
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))
}

func distinct(values []string) int {
	slices.Sort(values)
	return len(slices.Compact(values))
}

// group lets a second member join and leave, with a cooperative rebalance each time.
func group(ctx context.Context, servers string) {
	client := connect(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, groupTopic)
	check(err)
	check(created.Err)
	fill(ctx, client, 0)
	first := join(ctx, servers, "first")
	until(ctx, "all records", func() bool {
		_, _, read := first.state()
		return len(read) == count
	})
	second := join(ctx, servers, "second")
	until(ctx, "a share each", func() bool {
		one, _, _ := first.state()
		two, _, _ := second.state()
		return len(one) == 2 && len(two) == 2
	})
	_, revoked, _ := first.state()
	fmt.Println("shared; the first member gave up", len(revoked), "of", partitions)
	fill(ctx, client, count)
	until(ctx, "the further records", func() bool {
		_, _, one := first.state()
		_, _, two := second.state()
		return len(one)+len(two) >= 2*count
	})
	second.leave()
	until(ctx, "all partitions", func() bool {
		one, _, _ := first.state()
		return len(one) == partitions
	})
	_, _, one := first.state()
	_, _, two := second.state()
	first.leave()
	fmt.Println("read", len(one)+len(two), "distinct", distinct(append(one, two...)))
}

// resume goes on from the commits, in a new process and after a restart of the broker.
func resume(ctx context.Context, servers string) {
	client := connect(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	fill(ctx, client, 2*count)
	one := join(ctx, servers, "again")
	until(ctx, "the new records", func() bool {
		_, _, read := one.state()
		return len(read) >= count
	})
	one.leave()
	_, _, read := one.state()
	slices.Sort(read)
	fmt.Println("resumed", len(read), "distinct", distinct(slices.Clone(read)), "from", read[0])
}
