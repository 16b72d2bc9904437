package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// answer is what a server said to a request that no client would send in this way.
type answer struct {
	Code      int               `json:"code"`
	Flag      int               `json:"flag"`
	Remark    *string           `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
	body      []byte
}

// raw sends one request over a fresh connection: a frame with a JSON header.
func raw(address string, code int, body []byte, fields ...any) (*answer, error) {
	ext := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		ext[fields[i].(string)] = fmt.Sprint(fields[i+1])
	}
	sign(ext, body)
	header, err := json.Marshal(map[string]any{
		"code": code, "flag": 0, "language": "GO", "opaque": 1, "version": 317,
		"serializeTypeCurrentRPC": "JSON", "extFields": ext,
	})
	check(err)
	connection, err := net.DialTimeout("tcp", address, patient)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	check(connection.SetDeadline(time.Now().Add(patient)))
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	if _, err := connection.Write(append(append(frame, header...), body...)); err != nil {
		return nil, err
	}
	return readAnswer(connection)
}

func readAnswer(connection net.Conn) (*answer, error) {
	lengths := make([]byte, 8)
	if _, err := io.ReadFull(connection, lengths); err != nil {
		return nil, err
	}
	headerLength := binary.BigEndian.Uint32(lengths[4:]) & 0xffffff
	rest := make([]byte, binary.BigEndian.Uint32(lengths)-4)
	if _, err := io.ReadFull(connection, rest); err != nil {
		return nil, err
	}
	found := &answer{body: rest[headerLength:]}
	return found, json.Unmarshal(rest[:headerLength], found)
}
