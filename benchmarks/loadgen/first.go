package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// firstAck is a client that arrives before the server: it asks the name server for a route until there is one, then
// sends one message until it is acknowledged.
func firstAck(namesrv, broker string, send []byte, timeout time.Duration) (attempts int, err error) {
	deadline := time.Now().Add(timeout)
	route := frame([]byte(routeHeader), nil)
	for _, step := range []struct {
		address string
		request []byte
	}{{namesrv, route}, {broker, send}} {
		for {
			attempts++
			if err = ask(step.address, step.request); err == nil {
				break
			}
			if time.Now().After(deadline) {
				return attempts, fmt.Errorf("%s: %w", step.address, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return attempts, nil
}

// ask opens a connection for one request and wants code 0.
func ask(address string, request []byte) error {
	conn, err := net.DialTimeout("tcp4", address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(request); err != nil {
		return err
	}
	data := make([]byte, 0, 64<<10)
	for {
		a, size, _, err := cut(data)
		if err != nil {
			return err
		}
		if size > 0 && a.code != codeOK {
			return fmt.Errorf("answer %.200s", a.header)
		}
		if size > 0 {
			return nil
		}
		if len(data) == cap(data) {
			return errors.New("answer too long")
		}
		n, err := conn.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if n == 0 && err != nil {
			return io.ErrUnexpectedEOF
		}
	}
}
