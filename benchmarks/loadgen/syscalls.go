package main

import (
	"syscall"
	"unsafe"
)

// Raw system calls: the one busy thread owns its processor, so the scheduler need not hear of each call.
// Measured with one request in flight: 20 us of generator CPU per request instead of 48.

func rawRead(fd int, buffer []byte) (int, error) {
	n, _, number := syscall.RawSyscall(
		syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)))
	return result(n, number)
}

func rawWrite(fd int, data []byte) (int, error) {
	n, _, number := syscall.RawSyscall(
		syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
	return result(n, number)
}

func rawWait(poll int, events []syscall.EpollEvent, timeoutMs int) (int, error) {
	n, _, number := syscall.RawSyscall6(
		syscall.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(timeoutMs), 0, 0)
	return result(n, number)
}

func result(n uintptr, number syscall.Errno) (int, error) {
	if number != 0 {
		return 0, number
	}
	return int(n), nil
}
