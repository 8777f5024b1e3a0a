//go:build !linux

package store

import (
	"net"
	"time"
)

// dialer gives the dialer of database connections. Without TCP_USER_TIMEOUT, keep-alives notice a peer that vanished.
func dialer() *net.Dialer { return &net.Dialer{KeepAlive: 5 * time.Second} }
