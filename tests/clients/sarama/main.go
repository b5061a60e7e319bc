// Sarama as its users call it: each step prints what it found, and the test compares the lines.
//
//	clients SERVERS VERSION records|group STRATEGY|resume|admin
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const count, began = 500, int64(1_700_000_000_000)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// until waits for something that other goroutines do; the broker's own waits are much shorter.
func until(what string, holds func() bool) {
	for deadline := time.Now().Add(60 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			panic("waited in vain for " + what)
		}
	}
}

func valueOf(number int) string {
	return strings.Repeat(fmt.Sprintf("value %d ", number), 5)
}

// settings gives the configuration of an idempotent producer, and of consumers that see errors.
func settings(version string) *sarama.Config {
	config := sarama.NewConfig()
	parsed, err := sarama.ParseKafkaVersion(version)
	check(err)
	config.Version = parsed
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func send(servers []string, config *sarama.Config, messages []*sarama.ProducerMessage) {
	producer, err := sarama.NewSyncProducer(servers, config)
	check(err)
	check(producer.SendMessages(messages))
	check(producer.Close())
}

// records writes and reads with each codec, from the beginning and from a point in time.
func records(servers []string, version string) {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		topic := fmt.Sprintf("sarama-%s-%s", codec, version)
		config := settings(version)
		config.Producer.Compression = codec
		messages := make([]*sarama.ProducerMessage, count)
		for number := range messages {
			messages[number] = &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(fmt.Sprintf("key %d", number)),
				Value:     sarama.StringEncoder(valueOf(number)),
				Headers:   []sarama.RecordHeader{{Key: []byte("h"), Value: fmt.Append(nil, number)}},
				Timestamp: time.UnixMilli(began + int64(number)),
			}
		}
		send(servers, config, messages)
		for number, message := range messages {
			if message.Offset != int64(number) {
				panic(fmt.Sprint(topic, number, message.Offset))
			}
		}
		client, err := sarama.NewClient(servers, config)
		check(err)
		at, err := client.GetOffset(topic, 0, began+123)
		check(err)
		fmt.Println(codec, at, read(client, topic, 0), read(client, topic, at))
		check(client.Close())
	}
}

func read(client sarama.Client, topic string, from int64) int64 {
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	part, err := consumer.ConsumePartition(topic, 0, from)
	check(err)
	next := from
	for next < count {
		select {
		case message := <-part.Messages():
			number := int(next)
			good := message.Offset == next && string(message.Value) == valueOf(number) &&
				string(message.Key) == fmt.Sprintf("key %d", number) &&
				string(message.Headers[0].Value) == fmt.Sprint(number) &&
				message.Timestamp.UnixMilli() == began+next
			if !good {
				panic(fmt.Sprint(topic, next, message))
			}
			next++
		case failure := <-part.Errors():
			panic(failure)
		}
	}
	check(part.Close())
	check(consumer.Close())
	return next
}

func main() {
	servers, version := strings.Split(os.Args[1], ","), os.Args[2]
	switch os.Args[3] {
	case "records":
		records(servers, version)
	case "group":
		group(servers, version, os.Args[4])
	case "resume":
		resume(servers, version, os.Args[4])
	case "admin":
		admin(servers, version)
	default:
		panic(os.Args[3])
	}
}
