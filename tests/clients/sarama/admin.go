package main

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

const topic = "sarama-admin"

// codeOf gives the number of Kafka's error; 0 if there is none.
func codeOf(err error) any {
	var code sarama.KError
	if errors.As(err, &code) {
		return int(code)
	}
	if err != nil {
		return err
	}
	return 0
}

func topics(client sarama.ClusterAdmin) {
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}
	fmt.Println("create", codeOf(client.CreateTopic(topic, detail, false)))
	fmt.Println("again", codeOf(client.CreateTopic(topic, detail, false)))
	fmt.Println("bad name", codeOf(client.CreateTopic("bad name!", detail, false)))
	three := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}
	fmt.Println("3 replicas", codeOf(client.CreateTopic("sarama-three", three, false)))
	fmt.Println("grow", codeOf(client.CreatePartitions(topic, 5, nil, false)))
	fmt.Println("shrink", codeOf(client.CreatePartitions(topic, 2, nil, false)))
	var found []*sarama.TopicMetadata
	until("the new partitions", func() bool { // Kafka's brokers hear of them later
		described, err := client.DescribeTopics([]string{topic, "sarama-unknown"})
		check(err)
		found = described
		return len(found[0].Partitions) == 5
	})
	fmt.Println("partitions", len(found[0].Partitions), "unknown", codeOf(found[1].Err))
}

func changes(client sarama.ClusterAdmin) {
	hour := "3600000"
	for _, key := range []string{"retention.ms", "retention.hours"} {
		entry := sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour,
		}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{key: entry}
		err := client.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
		fmt.Println("alter", key, codeOf(err))
	}
	for _, key := range []string{"retention.ms", "segment.bytes"} {
		resource := sarama.ConfigResource{
			Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key},
		}
		entries, err := client.DescribeConfig(resource)
		check(err)
		fmt.Println("described", key, entries[0].Value, entries[0].Source)
	}
}

func deletions(client sarama.ClusterAdmin, servers []string, version string) {
	messages := make([]*sarama.ProducerMessage, 30)
	for number := range messages {
		value := sarama.StringEncoder(fmt.Sprint(number))
		messages[number] = &sarama.ProducerMessage{Topic: topic, Partition: 1, Value: value}
	}
	send(servers, settings(version), messages)
	fmt.Println("delete records", codeOf(client.DeleteRecords(topic, map[int32]int64{1: 10})))
	one, err := sarama.NewClient(servers, settings(version))
	check(err)
	start, err := one.GetOffset(topic, 1, sarama.OffsetOldest)
	check(err)
	end, err := one.GetOffset(topic, 1, sarama.OffsetNewest)
	check(err)
	fmt.Println("offsets", start, end)
	manager, err := sarama.NewOffsetManagerFromClient("sarama-lagging", one)
	check(err)
	part, err := manager.ManagePartition(topic, 1)
	check(err)
	part.MarkOffset(12, "a note")
	manager.Commit()
	check(part.Close())
	check(manager.Close())
	check(one.Close())
}

func dirs(client sarama.ClusterAdmin) {
	brokers, _, err := client.DescribeCluster()
	check(err)
	described, err := client.DescribeLogDirs([]int32{brokers[0].ID()})
	check(err)
	replicas, found := 0, described[brokers[0].ID()]
	for _, dir := range found {
		if dir.ErrorCode != sarama.ErrNoError || dir.TotalBytes <= 0 || dir.UsableBytes <= 0 {
			panic(fmt.Sprint(dir))
		}
		for _, one := range dir.Topics {
			if one.Topic == topic {
				replicas += len(one.Partitions)
			}
		}
	}
	fmt.Println("log dirs", len(found), "replicas", replicas)
}

func groups(client sarama.ClusterAdmin) {
	listed, err := client.ListConsumerGroups()
	check(err)
	described, err := client.DescribeConsumerGroups([]string{"sarama-lagging"})
	check(err)
	kind, isListed := listed["sarama-lagging"]
	fmt.Printf("group %v %q %s\n", isListed, kind, described[0].State)
	offsets, err := client.ListConsumerGroupOffsets("sarama-lagging", map[string][]int32{topic: {0, 1}})
	check(err)
	for _, number := range []int32{0, 1} {
		block := offsets.GetBlock(topic, number)
		fmt.Printf("offset %d %d %q\n", number, block.Offset, block.Metadata)
	}
	fmt.Println("delete offset", codeOf(client.DeleteConsumerGroupOffset("sarama-lagging", topic, 1)))
	fmt.Println("delete group", codeOf(client.DeleteConsumerGroup("sarama-unknown")))
}

// admin goes through the calls of the cluster's administration, mistakes included.
func admin(servers []string, version string) {
	client, err := sarama.NewClusterAdmin(servers, settings(version))
	check(err)
	topics(client)
	changes(client)
	deletions(client, servers, version)
	dirs(client)
	groups(client)
	fmt.Println("delete", codeOf(client.DeleteTopic(topic)))
	fmt.Println("delete unknown", codeOf(client.DeleteTopic("sarama-unknown")))
	check(client.Close())
}
