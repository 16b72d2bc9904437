package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	broker  = "broker-a"
	mib     = 1 << 20
	patient = 60 * time.Second
)

var background = context.Background()

// peer is a name server and a broker, and the clients the scenarios share.
type peer struct {
	namesrv, brokerAddr, prefix string
	admin                       admin.Admin
	// One queue for new topics, no second try: a retry would store a message twice.
	producer rocketmq.Producer
	// Sends to the queue that the message names, and never compresses.
	bold rocketmq.Producer
	made atomic.Int64
}

func newPeer(namesrv, brokerAddr, prefix string) *peer {
	p := &peer{namesrv: namesrv, brokerAddr: brokerAddr, prefix: prefix}
	made, err := admin.NewAdmin(admin.WithResolver(p.resolver()), admin.WithCredentials(credentials))
	check(err)
	p.admin = made
	p.signAdmin()
	p.producer = p.newProducer(producer.WithDefaultTopicQueueNums(1))
	p.bold = p.newProducer(
		producer.WithDefaultTopicQueueNums(1),
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
		producer.WithCompressMsgBodyOverHowmuch(64*mib))
	return p
}

// signAdmin: the admin of v2.1.2 does not sign until it has been asked for groups, whatever its credentials are.
func (p *peer) signAdmin() {
	if !credentials.IsEmpty() {
		_, err := p.admin.GetAllSubscriptionGroup(background, p.brokerAddr, patient)
		check(err)
	}
}

func (p *peer) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{p.namesrv})
}

func (p *peer) name(kind string) string {
	return fmt.Sprintf("%s%s%d", p.prefix, kind, p.made.Add(1))
}

func (p *peer) newProducer(options ...producer.Option) rocketmq.Producer {
	name := p.name("producer")
	made, err := rocketmq.NewProducer(append([]producer.Option{
		producer.WithNsResolver(p.resolver()),
		producer.WithInstanceName(name),
		producer.WithGroupName(name),
		producer.WithRetry(0),
		producer.WithCredentials(credentials),
	}, options...)...)
	check(err)
	check(made.Start())
	return made
}

func (p *peer) newPullConsumer(topic, expression string) rocketmq.PullConsumer {
	name := p.name("puller")
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(p.resolver()),
		consumer.WithInstance(name),
		consumer.WithGroupName(name),
		consumer.WithConsumerPullTimeout(25*time.Second),
		consumer.WithCredentials(credentials))
	check(err)
	check(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}))
	check(made.Start())
	return made
}

func (p *peer) topic(name string) string {
	return p.prefix + name
}

// createTopic makes a topic on the broker and waits until the name server knows it.
func (p *peer) createTopic(name string, readQueues, writeQueues int) string {
	topic := p.topic(name)
	check(p.admin.CreateTopic(background, p.topicOptions(topic, readQueues, writeQueues)...))
	eventually(func() bool { return len(p.queues(topic)) > 0 })
	return topic
}

func (p *peer) topicOptions(topic string, readQueues, writeQueues int) []admin.OptionCreate {
	return []admin.OptionCreate{
		admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(p.brokerAddr),
		admin.WithReadQueueNums(readQueues), admin.WithWriteQueueNums(writeQueues),
	}
}

// queues lists the ids of the queues to write to.
func (p *peer) queues(topic string) []int {
	ids := []int{}
	queues, err := p.admin.FetchPublishMessageQueues(background, topic)
	if err != nil {
		return ids
	}
	for _, queue := range queues {
		ids = append(ids, queue.QueueId)
	}
	return ids
}

// settle waits until the queue shows so many messages: Apache's broker answers a send before that.
func (p *peer) settle(topic string, id, end int) {
	eventually(func() bool {
		found, err := raw(p.brokerAddr, 30, nil, "topic", topic, "queueId", id)
		if err != nil || found.Code != 0 {
			return false
		}
		offset, err := strconv.Atoi(found.ExtFields["offset"])
		return err == nil && offset >= end
	})
}

func queue(topic string, id int) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: topic, BrokerName: broker, QueueId: id}
}

func message(topic string, id int, body []byte) *primitive.Message {
	made := primitive.NewMessage(topic, body)
	made.Queue = queue(topic, id)
	return made
}

func eventually(condition func() bool) {
	for deadline := time.Now().Add(patient); time.Now().Before(deadline) && !condition(); {
		time.Sleep(20 * time.Millisecond)
	}
}

// text compresses well.
func text(length int) []byte {
	line := "the quick brown fox jumps over the lazy dog\n"
	made := make([]byte, length)
	for i := range made {
		made[i] = line[i%len(line)]
	}
	return made
}

// noise does not compress.
func noise(length int) []byte {
	made := make([]byte, length)
	state := uint32(length)*2654435761 + 1
	for i := range made {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		made[i] = byte(state)
	}
	return made
}
