package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transactional = "go-transactions"
	turns         = 6
)

// epoch asks the coordinator for the producer's epoch, after the markers of its last transaction.
func epoch(ctx context.Context, admin *kadm.Client) int {
	for {
		found, err := admin.DescribeTransactions(ctx, transactional)
		check(err)
		one := found[transactional]
		check(one.Err)
		if one.State != "PrepareCommit" && one.State != "PrepareAbort" {
			return int(one.ProducerEpoch)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// transactions commits and aborts; the epoch tells which protocol the client has taken.
func transactions(ctx context.Context, servers string) {
	client := connect(servers, kgo.TransactionalID(transactional), kgo.AllowAutoTopicCreation(),
		kgo.DefaultProduceTopic(transactional), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	admin := kadm.NewClient(client)
	begun := -1
	for turn := range turns {
		check(client.BeginTransaction())
		records := make([]*kgo.Record, 40)
		for number := range records {
			value := fmt.Appendf(nil, "turn %d", turn)
			records[number] = &kgo.Record{Partition: int32(number % 4), Value: value}
		}
		check(client.ProduceSync(ctx, records...).FirstErr())
		end := kgo.TryCommit
		if turn%2 == 1 {
			end = kgo.TryAbort
		}
		if begun < 0 {
			begun = epoch(ctx, admin)
		}
		check(client.EndTransaction(ctx, end))
	}
	fmt.Println("epochs", epoch(ctx, admin)-begun)
	client.Close()
	reader := connect(servers, kgo.ConsumeTopics(transactional),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	counts := map[string]int{}
	for read := 0; read < 40*turns/2; {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			counts[string(record.Value)]++
			read++
		})
	}
	reader.Close()
	fmt.Println("committed", counts)
}
