package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var (
	address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
	// The ids of this client mix upper and lower case.
	id = regexp.MustCompile(`\b([0-9A-Fa-f]{56}|[0-9A-Fa-f]{32})\b`)
	// What a broker said, inside the text of an error: this client has no other place for it.
	refusal = regexp.MustCompile(`(?s)^(?:CODE|unknown Response Code): (\d+), (?:DESC|remark): (.*)`)
	// A broker that answers with a Java exception: its text is no promise to anybody.
	exception = regexp.MustCompile(`(?s)^(\w+\.)+\w*(Exception|Error)\b.*`)
)

// fields keeps its order in JSON, unlike a map.
type fields []any

func (f fields) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	for i := 0; i < len(f); i += 2 {
		name, _ := json.Marshal(f[i])
		value, err := json.Marshal(f[i+1])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s%s: %s", map[bool]string{true: "{", false: ",\n"}[i == 0], name, value)
	}
	out.WriteString("}")
	return out.Bytes(), nil
}

// answers holds what the client saw, with ids, addresses and the run's prefix replaced by names.
type answers struct {
	peer      *peer
	scenarios fields
}

type steps struct {
	answers  *answers
	taken    fields
	accepted int // sends so far
}

func newAnswers(peer *peer) *answers {
	return &answers{peer: peer}
}

func (a *answers) scenario(name string) *steps {
	made := &steps{answers: a}
	a.scenarios = append(a.scenarios, name, made)
	return made
}

func (s *steps) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.taken)
}

func (a *answers) json() []byte {
	out, err := json.Marshal(a.scenarios)
	check(err)
	return append(out, '\n')
}

func (a *answers) clean(text string) string {
	text = strings.ReplaceAll(text, a.peer.namesrv, "<namesrv>")
	text = strings.ReplaceAll(text, a.peer.brokerAddr, "<broker>")
	text = strings.ReplaceAll(text, a.peer.prefix, "")
	text = address.ReplaceAllString(text, "<address>")
	text = id.ReplaceAllString(text, "<id>")
	text = exception.ReplaceAllString(text, "<exception>")
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// step runs one step; its value, or the way it failed, is the answer.
func (s *steps) step(name string, action func() (any, error)) {
	answer, err := action()
	if err != nil {
		answer = s.failed(err)
	}
	s.taken = append(s.taken, name, answer)
}

func (s *steps) failed(err error) fields {
	if refused := refusal.FindStringSubmatch(err.Error()); refused != nil {
		return fields{"failure", "refused", "code", refused[1], "remark", s.answers.clean(refused[2])}
	}
	return fields{"failure", s.answers.clean(err.Error())}
}

func (s *steps) sent(result *primitive.SendResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	s.accepted++
	return fields{
		"status", result.Status,
		"queue", result.MessageQueue.QueueId,
		"offset", result.QueueOffset,
		"msgId", s.answers.clean(result.MsgID),
		"offsetMsgId", s.answers.clean(result.OffsetMsgID),
		"transactionId", s.answers.clean(result.TransactionID),
		"region", result.RegionID,
		"traceOn", result.TraceOn,
	}, nil
}

func (s *steps) pulled(result *primitive.PullResult, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	found := []string{}
	for _, message := range result.GetMessageExts() {
		found = append(found, brief(message))
	}
	return fields{
		"status", result.Status,
		"next", result.NextBeginOffset,
		"min", result.MinOffset,
		"max", result.MaxOffset,
		"found", found,
	}, nil
}

func brief(message *primitive.MessageExt) string {
	tags := ""
	if message.GetTags() != "" {
		tags = " " + message.GetTags()
	}
	return fmt.Sprintf("%d/%d%s %s", message.Queue.QueueId, message.QueueOffset, tags, body(message.Body))
}

func (s *steps) message(message *primitive.MessageExt) fields {
	properties := fields{}
	names := []string{}
	for name := range message.GetProperties() {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		properties = append(properties, name, s.answers.clean(message.GetProperty(name)))
	}
	return fields{
		"queue", message.Queue.QueueId,
		"offset", message.QueueOffset,
		"tags", message.GetTags(),
		"keys", message.GetKeys(),
		"flag", message.Flag,
		"sysFlag", message.SysFlag,
		"reconsumeTimes", message.ReconsumeTimes,
		"preparedTransactionOffset", message.PreparedTransactionOffset,
		"body", body(message.Body),
		"properties", properties,
		"bornHost", strings.Split(message.BornHost, ":")[0],
		"storeHostIsTheBroker", message.StoreHost == s.answers.peer.brokerAddr,
		"msgId", s.answers.clean(message.MsgId),
		"offsetMsgId", s.answers.clean(message.OffsetMsgId),
	}
}

func body(data []byte) string {
	digest := sha256.Sum256(data)
	return fmt.Sprintf("%d bytes %x", len(data), digest[:4])
}
