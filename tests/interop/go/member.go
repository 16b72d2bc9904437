package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	// A consumer that comes too late for one round of balancing waits 20 s for the next, and 30 s for a route.
	veryPatient = 75 * time.Second
	// Anything delivered twice would show.
	quiet = 500 * time.Millisecond
)

var (
	moment   = regexp.MustCompile(`^\d{13}$`)
	changing = []string{"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
)

// delivery is a message as the listener got it: the client changes the object when it comes again.
type delivery struct {
	key    string
	queue  int
	offset int64
	times  int32
	at     time.Time
	stored time.Time
	view   fields
}

func (d delivery) place() string {
	return fmt.Sprintf("%d/%d %s", d.queue, d.offset, d.key)
}

func (d delivery) time() string {
	return fmt.Sprintf("%s %d", d.key, d.times)
}

type judge func(ctx context.Context, d delivery) (consumer.ConsumeResult, error)

// member is one push consumer of a group, a client instance of its own, and all that its listener got.
type member struct {
	steps    *steps
	consumer rocketmq.PushConsumer
	lock     sync.Mutex
	all      []delivery
}

func success(context.Context, delivery) (consumer.ConsumeResult, error) {
	return consumer.ConsumeSuccess, nil
}

func (p *peer) member(s *steps, group, name, topic, expression string, judge judge, options ...consumer.Option) *member {
	m := &member{steps: s}
	made, err := rocketmq.NewPushConsumer(append([]consumer.Option{
		consumer.WithNsResolver(p.resolver()), consumer.WithInstance(p.topic(group + "-" + name)),
		consumer.WithGroupName(p.topic(group)), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
	}, options...)...)
	check(err)
	m.consumer = made
	listener := func(ctx context.Context, messages ...*primitive.MessageExt) (result consumer.ConsumeResult, err error) {
		for _, message := range messages {
			result, err = judge(ctx, m.keep(message))
		}
		return result, err
	}
	check(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, listener))
	check(made.Start())
	return m
}

func (m *member) keep(message *primitive.MessageExt) delivery {
	kept := delivery{
		key: message.GetKeys(), queue: message.Queue.QueueId, offset: message.QueueOffset, times: message.ReconsumeTimes,
		at: time.Now(), stored: time.UnixMilli(message.StoreTimestamp), view: m.steps.seen(message),
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.all = append(m.all, kept)
	return kept
}

func (m *member) stop() {
	check(m.consumer.Shutdown())
}

func (m *member) got() []delivery {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.all)
}

// awaited waits until that many came, and a little for those too many; all of them, sorted.
func (m *member) awaited(count int) []string {
	long(func() bool { return len(m.got()) >= count })
	time.Sleep(quiet)
	return places(m.got())
}

// settled is for when it is not sure that so many will come: it waits until nothing has come for a while.
func (m *member) settled(count int) []delivery {
	deadline := time.Now().Add(veryPatient)
	for len(m.got()) < count && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	for before := -1; before != len(m.got()); time.Sleep(1500 * time.Millisecond) {
		before = len(m.got())
	}
	return m.got()
}

func (m *member) of(key string) []delivery {
	found := []delivery{}
	for _, one := range m.got() {
		if one.key == key {
			found = append(found, one)
		}
	}
	return found
}

// keysByQueue has the keys in the order in which each queue gave them.
func (m *member) keysByQueue() map[string][]string {
	keys := map[string][]string{}
	for _, one := range m.got() {
		queue := fmt.Sprint("queue ", one.queue)
		keys[queue] = append(keys[queue], one.key)
	}
	return keys
}

func places(deliveries []delivery) []string {
	found := []string{}
	for _, one := range deliveries {
		found = append(found, one.place())
	}
	sort.Strings(found)
	return found
}

func times(deliveries []delivery) []string {
	found := []string{}
	for _, one := range deliveries {
		found = append(found, one.time())
	}
	return found
}

// seen is the view of a message without times and without the bounds that its queue had.
func (s *steps) seen(message *primitive.MessageExt) fields {
	view := s.message(message)
	for i := 0; i < len(view); i += 2 {
		if view[i] == "properties" {
			properties := view[i+1].(fields)
			for j := 0; j < len(properties); j += 2 {
				value := properties[j+1].(string)
				if slices.Contains(changing, properties[j].(string)) || moment.MatchString(value) {
					properties[j+1] = "<n>"
				}
			}
		}
	}
	return view
}

func without(view fields, name string) fields {
	left := fields{}
	for i := 0; i < len(view); i += 2 {
		if view[i] != name {
			left = append(left, view[i], view[i+1])
		}
	}
	return left
}

func long(condition func() bool) bool {
	for deadline := time.Now().Add(veryPatient); time.Now().Before(deadline); {
		if condition() {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return condition()
}

func (p *peer) send(topic string, id int, tag, key string) *primitive.SendResult {
	made := message(topic, id, []byte(key)).WithKeys([]string{key})
	if tag != "" {
		made.WithTag(tag)
	}
	sent, err := p.bold.SendSync(background, made)
	check(err)
	return sent
}

// fill sends messages a0, a1, … over the queues in turn, and waits until these show them.
func (p *peer) fill(topic string, queues int, name string, count int) {
	ends := map[int]int{}
	for i := 0; i < count; i++ {
		ends[i%queues] = int(p.send(topic, i%queues, "", fmt.Sprint(name, i)).QueueOffset) + 1
	}
	for id, end := range ends {
		p.settle(topic, id, end)
	}
}

func (p *peer) retryTopic(group string) string {
	return "%RETRY%" + p.topic(group)
}

func (p *peer) deadLetters(group string) string {
	return "%DLQ%" + p.topic(group)
}

// createRetryTopic spares the first redelivery of a new group the wait for a timer of the client.
func (p *peer) createRetryTopic(group string) {
	_, err := raw(p.brokerAddr, 17, nil, "topic", p.retryTopic(group), "defaultTopic", "TBW102", "readQueueNums", 1,
		"writeQueueNums", 1, "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false)
	check(err)
	eventually(func() bool { return !strings.HasPrefix(p.route(p.retryTopic(group)), "code") })
}

// route is what the name server says of a topic.
func (p *peer) route(topic string) string {
	found, err := raw(p.namesrv, 105, nil, "topic", topic)
	check(err)
	if found.Code != 0 {
		return fmt.Sprint("code ", found.Code)
	}
	facts := []string{}
	for _, name := range []string{"readQueueNums", "writeQueueNums", "perm"} {
		value := regexp.MustCompile(`"` + name + `":(\d+)`).FindSubmatch(found.body)
		facts = append(facts, name+" "+string(value[1]))
	}
	return strings.Join(facts, ", ")
}

// committed has the offsets that the broker keeps for the group, once they are as expected.
func (p *peer) committed(group, topic string, expected ...int) map[string]string {
	offsets := map[string]string{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		equal := true
		for queue, offset := range expected {
			now := p.offset(group, topic, queue)
			offsets[fmt.Sprint("queue ", queue)] = now
			equal = equal && now == fmt.Sprint(offset)
		}
		if equal {
			break
		}
	}
	return offsets
}

func (p *peer) offset(group, topic string, queue int) string {
	found, err := raw(p.brokerAddr, 14, nil, "consumerGroup", p.topic(group), "topic", topic, "queueId", queue)
	check(err)
	if found.Code != 0 {
		return fmt.Sprint("code ", found.Code)
	}
	return found.ExtFields["offset"]
}

// deadLetter has the dead letters of a group with that key, once there is one.
func (p *peer) deadLetter(s *steps, group, key string) (found []fields) {
	long(func() bool {
		found = p.storedAs(s, p.deadLetters(group), key)
		return len(found) > 0
	})
	return found
}

// storedAs has the messages of queue 0 with that key.
func (p *peer) storedAs(s *steps, topic, key string) []fields {
	views := []fields{}
	if strings.HasPrefix(p.route(topic), "code") {
		return views
	}
	puller := p.newPullConsumer(topic, "*")
	defer puller.Shutdown()
	for offset, end := int64(0), int64(1); offset < end; {
		result, err := puller.PullFrom(background, queue(topic, 0), offset, 32)
		if err != nil {
			return views
		}
		for _, found := range result.GetMessageExts() {
			if found.GetKeys() == key {
				views = append(views, without(s.seen(found), "offset"))
			}
		}
		offset, end = result.NextBeginOffset, result.MaxOffset
	}
	return views
}
