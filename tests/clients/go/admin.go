package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// nameOf gives Kafka's name of an error, or "ok".
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func topics(ctx context.Context, client *kadm.Client) {
	day := "86400000"
	settings := map[string]*string{"retention.ms": &day}
	for range 2 {
		created, err := client.CreateTopic(ctx, 3, 1, settings, "go-admin")
		fmt.Println("create", created.NumPartitions, nameOf(errors.Join(err, created.Err)))
	}
	_, err := client.CreateTopic(ctx, 1, 1, nil, "bad name!")
	fmt.Println("create with a bad name", nameOf(err))
	_, err = client.CreateTopic(ctx, 1, 3, nil, "go-replicas")
	fmt.Println("create with 3 replicas", nameOf(err))
	listed, err := client.ListTopics(ctx, "go-admin", "go-unknown")
	check(err)
	fmt.Println("list", len(listed["go-admin"].Partitions), nameOf(listed["go-unknown"].Err))
	grown, err := client.CreatePartitions(ctx, 2, "go-admin", "go-unknown")
	check(err)
	fmt.Println("grow", nameOf(grown["go-admin"].Err), nameOf(grown["go-unknown"].Err))
	count := 0
	until(ctx, "the new partitions", func() bool { // Kafka's brokers hear of them later
		listed, err = client.ListTopics(ctx, "go-admin")
		check(err)
		count = len(listed["go-admin"].Partitions)
		return count > 3
	})
	fmt.Println("partitions", count)
}

func settings(ctx context.Context, client *kadm.Client) {
	hour := "3600000"
	for _, key := range []string{"retention.ms", "retention.hours"} {
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &hour}}
		changed, err := client.AlterTopicConfigs(ctx, change, "go-admin")
		check(err)
		fmt.Println("alter", key, nameOf(changed[0].Err))
	}
	described, err := client.DescribeTopicConfigs(ctx, "go-admin")
	check(err)
	for _, key := range []string{"retention.ms", "segment.bytes"} {
		for _, one := range described[0].Configs {
			if one.Key == key {
				fmt.Println("described", key, *one.Value, one.Source)
			}
		}
	}
}

func records(ctx context.Context, client *kadm.Client, producer *kgo.Client) {
	for number := range 30 {
		record := kgo.StringRecord(fmt.Sprint(number))
		record.Topic, record.Partition = "go-admin", 1
		check(producer.ProduceSync(ctx, record).FirstErr())
	}
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: "go-admin", Partition: 1, At: 10})
	upTo.Add(kadm.Offset{Topic: "go-admin", Partition: 0, At: 10})
	deleted, err := client.DeleteRecords(ctx, upTo)
	check(err)
	fmt.Println("delete records", deleted["go-admin"][1].LowWatermark,
		nameOf(deleted["go-admin"][0].Err))
	starts, err := client.ListStartOffsets(ctx, "go-admin")
	check(err)
	ends, err := client.ListEndOffsets(ctx, "go-admin")
	check(err)
	fmt.Println("offsets", starts["go-admin"][1].Offset, ends["go-admin"][1].Offset)
	dirs, err := client.DescribeAllLogDirs(ctx, nil)
	check(err)
	replicas := 0
	dirs.Each(func(dir kadm.DescribedLogDir) {
		check(dir.Err)
		replicas += len(dir.Topics["go-admin"])
	})
	fmt.Println("log dirs: replicas of go-admin", replicas)
}

func groups(ctx context.Context, client *kadm.Client) {
	var commits kadm.Offsets
	commits.Add(kadm.Offset{Topic: "go-admin", Partition: 1, At: 12, LeaderEpoch: -1})
	committed, err := client.CommitOffsets(ctx, "go-lagging", commits)
	check(err)
	fmt.Println("commit", nameOf(committed.Error()))
	listed, err := client.ListGroups(ctx)
	check(err)
	fmt.Println("group", listed["go-lagging"].State)
	lags, err := client.Lag(ctx, "go-lagging")
	check(err)
	lag := lags["go-lagging"]
	fmt.Println("lag", lag.Lag.Total(), nameOf(lag.Error()))
	deleted, err := client.DeleteGroups(ctx, "go-lagging", "go-unknown")
	check(err)
	fmt.Println("delete groups", nameOf(deleted["go-lagging"].Err), nameOf(deleted["go-unknown"].Err))
}

// admin goes through the calls of kadm, mistakes included.
func admin(ctx context.Context, servers string) {
	producer := connect(servers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	client := kadm.NewClient(producer)
	topics(ctx, client)
	settings(ctx, client)
	records(ctx, client, producer)
	groups(ctx, client)
	deleted, err := client.DeleteTopics(ctx, "go-admin", "go-unknown")
	check(err)
	fmt.Println("delete topics", nameOf(deleted["go-admin"].Err), nameOf(deleted["go-unknown"].Err))
}
