package store

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h: how long sent data may stay unacknowledged, in milliseconds.
const tcpUserTimeout = 0x12

// dialer gives the dialer of database connections: a peer that vanished is noticed within 10 s (B8).
func dialer() *net.Dialer {
	return &net.Dialer{
		KeepAlive: 10 * time.Second,
		Control: func(network, _ string, raw syscall.RawConn) error {
			if network != "tcp" && network != "tcp4" && network != "tcp6" {
				return nil
			}
			var set error
			err := raw.Control(func(fd uintptr) {
				set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, 10_000)
			})
			if err != nil {
				return err
			}
			return set
		},
	}
}
