// Franz-go as its users call it: each step prints what it found, and the test compares the lines.
//
//	clients SERVERS produce|consume|group|resume|admin|transactions
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 500

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()},
	{"gzip", kgo.GzipCompression()},
	{"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"zstd", kgo.ZstdCompression()},
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func connect(servers string, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(strings.Split(servers, ",")...))
	client, err := kgo.NewClient(options...)
	check(err)
	return client
}

func valueOf(number int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("value %d ", number), 5))
}

// produce sends records with an idempotent producer, which is franz-go's default.
func produce(ctx context.Context, servers string) {
	for _, one := range codecs {
		topic := "go-" + one.name
		client := connect(servers, kgo.ProducerBatchCompression(one.codec),
			kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(topic),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		records := make([]*kgo.Record, count)
		for number := range records {
			records[number] = &kgo.Record{
				Key: fmt.Appendf(nil, "key %d", number), Value: valueOf(number),
				Headers:   []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, number)}},
				Timestamp: time.UnixMilli(1_700_000_000_000 + int64(number)),
			}
		}
		results := client.ProduceSync(ctx, records...)
		check(results.FirstErr())
		for number, result := range results {
			if result.Record.Offset != int64(number) {
				panic(fmt.Sprint(topic, number, result.Record.Offset))
			}
		}
		fmt.Println("produced", one.name, len(results))
		client.Close()
	}
}

// consume reads without a group, from the beginning and from a point in time.
func consume(ctx context.Context, servers string) {
	for _, one := range codecs {
		topic := "go-" + one.name
		for _, from := range []int{0, 123} {
			start := kgo.NewOffset().AtStart()
			if from > 0 {
				start = kgo.NewOffset().AfterMilli(1_700_000_000_000 + int64(from))
			}
			client := connect(servers, kgo.ConsumePartitions(
				map[string]map[int32]kgo.Offset{topic: {0: start}}))
			next := from
			for next < count {
				fetches := client.PollFetches(ctx)
				check(fetches.Err())
				fetches.EachRecord(func(record *kgo.Record) {
					good := record.Offset == int64(next) && string(record.Value) == string(valueOf(next)) &&
						string(record.Key) == fmt.Sprintf("key %d", next) &&
						string(record.Headers[0].Value) == fmt.Sprint(next) &&
						record.Timestamp.UnixMilli() == 1_700_000_000_000+int64(next)
					if !good {
						panic(fmt.Sprint(topic, next, record))
					}
					next++
				})
			}
			fmt.Println("consumed", one.name, from, next)
			client.Close()
		}
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	servers, steps := os.Args[1], map[string]func(context.Context, string){
		"produce": produce, "consume": consume, "group": group, "resume": resume, "admin": admin,
		"transactions": transactions,
	}
	steps[os.Args[2]](ctx, servers)
}
