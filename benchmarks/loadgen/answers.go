package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// An answer is scanned for the two or three numbers the load needs; every sampleEvery-th is also parsed in full.

const (
	codeOK          = 0
	codePullEmpty   = 19
	codePullRetry   = 20
	codePullMoved   = 21
	maxFrame        = 16 << 20
	sampleEvery     = 4096
	messageIDLength = 32
)

type answer struct {
	code   int64
	opaque int64
	header []byte
	body   []byte
}

var (
	codeKey      = []byte(`"code":`)
	opaqueKey    = []byte(`"opaque":`)
	nextBeginKey = []byte(`"nextBeginOffset":"`)
	maxOffsetKey = []byte(`"maxOffset":"`)
)

// cut takes one whole frame from the front of data. size 0: more bytes are needed, wanted in all.
func cut(data []byte) (a answer, size, wanted int, err error) {
	if len(data) < 8 {
		return a, 0, 8, nil
	}
	length := int(binary.BigEndian.Uint32(data))
	if length < 4 || length > maxFrame {
		return a, 0, 0, fmt.Errorf("frame of %d bytes", length)
	}
	if len(data) < 4+length {
		return a, 0, 4 + length, nil
	}
	mark := binary.BigEndian.Uint32(data[4:])
	header := int(mark & 0xFFFFFF)
	if mark>>24 != 0 || header > length-4 {
		return a, 0, 0, fmt.Errorf("answer is no JSON frame: type %d, header of %d bytes in %d", mark>>24, header, length)
	}
	a.header, a.body = data[8:8+header], data[8+header:4+length]
	if a.code, err = number(a.header, codeKey); err != nil {
		return a, 0, 0, err
	}
	a.opaque, err = number(a.header, opaqueKey)
	return a, 4 + length, 0, err
}

func number(header, key []byte) (int64, error) {
	at := bytes.Index(header, key)
	if at < 0 {
		return 0, fmt.Errorf("answer without %s: %.200s", key, header)
	}
	value, sign := int64(0), int64(1)
	rest := header[at+len(key):]
	if len(rest) > 0 && rest[0] == '-' {
		sign, rest = -1, rest[1:]
	}
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		value = value*10 + int64(c-'0')
	}
	return sign * value, nil
}

type fullHeader struct {
	Code      int               `json:"code"`
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
}

func parse(header []byte) (fullHeader, error) {
	var full fullHeader
	err := json.Unmarshal(header, &full)
	if err == nil && full.Flag&1 == 0 {
		err = errors.New("answer without the response flag")
	}
	return full, err
}

// checkSent holds a send answer to what a Java producer reads from it.
func checkSent(header []byte, queue int) error {
	full, err := parse(header)
	if err != nil {
		return err
	}
	if len(full.ExtFields["msgId"]) < messageIDLength {
		return fmt.Errorf("msgId %q", full.ExtFields["msgId"])
	}
	if full.ExtFields["queueId"] != strconv.Itoa(queue) {
		return fmt.Errorf("sent to queue %d, answered queue %q", queue, full.ExtFields["queueId"])
	}
	_, err = strconv.ParseInt(full.ExtFields["queueOffset"], 10, 64)
	return err
}

// records counts the records of a pull answer by their length fields.
func records(body []byte) (int, error) {
	count := 0
	for len(body) > 0 {
		if len(body) < 4 {
			return 0, errors.New("pull body ends inside a record")
		}
		size := int(int32(binary.BigEndian.Uint32(body)))
		if size < 4 || size > len(body) {
			return 0, fmt.Errorf("record of %d bytes in a body of %d", size, len(body))
		}
		body = body[size:]
		count++
	}
	return count, nil
}
