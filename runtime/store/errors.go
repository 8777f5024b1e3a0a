package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Code gives the SQLSTATE in an error, "" where the server said none.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// Constraint gives the name of the constraint or unique index that an error of class 23 names, else "".
func Constraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.ConstraintName
	}
	return ""
}

// TryAgain says that the same transaction may simply be sent again, at most 3 times with jitter (S0): deadlock, serialization, lock not had.
func TryAgain(err error) bool {
	switch Code(err) {
	case "40P01", "40001", "55P03":
		return true
	}
	return false
}

// TooMuch says that a batch is to be halved, down to the poison row (S0): data, constraint or size refused by the server.
func TooMuch(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// Away says that the database cannot be reached or takes no writes at present: nothing was stored unless the error is a *CommitUnknownError.
func Away(err error) bool {
	if err == nil {
		return false
	}
	switch code := Code(err); code {
	case "":
		var connect *pgconn.ConnectError
		return errors.As(err, &connect) || errors.Is(err, errBroken) || pgconn.SafeToRetry(err)
	default:
		return brokenCode(code) || strings.HasPrefix(code, "53")
	}
}

// errBroken marks an error after which the connection was closed.
var errBroken = errors.New("connection lost")

// brokenCode says that the connection is of no more use (B8): read-only after a failover, shut down, connection errors.
func brokenCode(code string) bool {
	return code == "25006" || strings.HasPrefix(code, "57P0") || strings.HasPrefix(code, "08")
}

// Unreachable says that no server took the connection, or that it takes none for now (starting, shutting down, full, closed to
// connections): later the same address may do.
func Unreachable(err error) bool {
	switch code := Code(err); {
	case code == "":
		_, connecting := errors.AsType[*pgconn.ConnectError](err)
		return connecting
	case strings.HasPrefix(code, "08") && code != "08P01":
		return true
	default:
		return slices.Contains([]string{"57P01", "57P02", "57P03", "53300", "55000"}, code)
	}
}
