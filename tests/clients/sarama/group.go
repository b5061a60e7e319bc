package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const partitions = 4

// member is one consumer of the group, with its share and what it has read.
type member struct {
	group  sarama.ConsumerGroup
	lock   sync.Mutex
	share  int
	shares []int
	read   []string
	done   chan struct{}
}

func (one *member) Setup(session sarama.ConsumerGroupSession) error {
	return nil
}

func (one *member) Cleanup(session sarama.ConsumerGroupSession) error {
	return nil
}

// ConsumeClaim reads one partition until it is taken away, and commits each record.
func (one *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	one.change(1)
	defer one.change(-1)
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			one.lock.Lock()
			one.read = append(one.read, string(message.Value))
			one.lock.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (one *member) change(by int) {
	one.lock.Lock()
	defer one.lock.Unlock()
	one.share += by
	one.shares = append(one.shares, one.share)
}

func (one *member) state() (int, []string) {
	one.lock.Lock()
	defer one.lock.Unlock()
	return one.share, slices.Clone(one.read)
}

// join starts a consumer that reads until it leaves.
func join(servers []string, version, strategy string) *member {
	config := settings(version)
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		map[string]func() sarama.BalanceStrategy{
			"range": sarama.NewBalanceStrategyRange, "roundrobin": sarama.NewBalanceStrategyRoundRobin,
			"sticky":      sarama.NewBalanceStrategySticky,
			"cooperative": sarama.NewBalanceStrategyCooperativeSticky,
		}[strategy](),
	}
	group, err := sarama.NewConsumerGroup(servers, "sarama-"+strategy, config)
	check(err)
	one := &member{group: group, done: make(chan struct{})}
	go func() {
		for failure := range group.Errors() {
			panic(failure)
		}
	}()
	go func() {
		defer close(one.done)
		for {
			err := group.Consume(context.Background(), []string{"sarama-" + strategy}, one)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			check(err)
		}
	}()
	return one
}

func (one *member) leave() []string {
	check(one.group.Close())
	<-one.done
	_, read := one.state()
	return read
}

func fill(servers []string, version, topic string, from int) {
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = &sarama.ProducerMessage{
			Topic: topic, Partition: int32(number % partitions),
			Value: sarama.StringEncoder(fmt.Sprintf("%04d", from+number)),
		}
	}
	send(servers, settings(version), messages)
}

func distinct(values []string) int {
	slices.Sort(values)
	return len(slices.Compact(values))
}

// group lets a second member join and leave, with a rebalance each time.
func group(servers []string, version, strategy string) {
	topic := "sarama-" + strategy
	client, err := sarama.NewClusterAdmin(servers, settings(version))
	check(err)
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	check(client.CreateTopic(topic, detail, false))
	check(client.Close())
	fill(servers, version, topic, 0)
	first := join(servers, version, strategy)
	until("all records", func() bool {
		share, read := first.state()
		return len(read) == count && share == partitions
	})
	second := join(servers, version, strategy)
	until("a share each", func() bool {
		one, _ := first.state()
		two, _ := second.state()
		return one == 2 && two == 2
	})
	first.lock.Lock()
	fewest := slices.Min(first.shares[partitions:])
	first.lock.Unlock()
	fmt.Println("shared; the first member kept", fewest, "of", partitions)
	fill(servers, version, topic, count)
	until("the further records", func() bool {
		_, one := first.state()
		_, two := second.state()
		return len(one)+len(two) >= 2*count
	})
	two := second.leave()
	until("all partitions", func() bool {
		share, _ := first.state()
		return share == partitions
	})
	one := first.leave()
	fmt.Println("read", len(one)+len(two), "distinct", distinct(append(one, two...)))
}

// resume goes on from the commits, in a new process and after a restart of the broker.
func resume(servers []string, version, strategy string) {
	fill(servers, version, "sarama-"+strategy, 2*count)
	one := join(servers, version, strategy)
	until("the new records", func() bool {
		_, read := one.state()
		return len(read) >= count
	})
	read := one.leave()
	slices.Sort(read)
	fmt.Println("resumed", len(read), "distinct", distinct(slices.Clone(read)), "from", read[0])
}
