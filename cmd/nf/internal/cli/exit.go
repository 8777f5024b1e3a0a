package cli

import (
	"errors"
	"fmt"
	"slices"
)

// Exit codes (contract 5.3). Never dependent on format, verbosity or terminal.
const (
	exitOK          = 0
	exitFailed      = 1
	exitChanges     = 2
	exitFindings    = 3
	exitRefused     = 4
	exitStale       = 5
	exitUsage       = 64
	exitInterrupted = 130
	exitTerminated  = 143
)

// precedence is which code wins when several apply.
var precedence = []int{exitUsage, exitFailed, exitFindings, exitRefused, exitStale, exitChanges}

// exitError ends the command with a code. An empty message was already told.
type exitError struct {
	code    int
	message string
	hint    string
	cause   error
}

func (e *exitError) Error() string { return e.message }
func (e *exitError) Unwrap() error { return e.cause }

// usage is a mistake of the person at the keyboard: exit 64.
func usage(format string, args ...any) *exitError {
	return &exitError{code: exitUsage, message: fmt.Sprintf(format, args...)}
}

// fail ends with code 1.
func fail(format string, args ...any) *exitError {
	err := fmt.Errorf(format, args...)
	return &exitError{code: exitFailed, message: err.Error(), cause: err}
}

// refused ends with code 4.
func refused(format string, args ...any) *exitError {
	return &exitError{code: exitRefused, message: fmt.Sprintf(format, args...)}
}

// hinted adds what to do about it.
func (e *exitError) hinted(format string, args ...any) *exitError {
	e.hint = fmt.Sprintf(format, args...)
	return e
}

// quiet ends with a code whose reason was already printed.
func quiet(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// codeOf gives the exit code of an error.
func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// worst gives the code that wins.
func worst(codes ...int) int {
	for _, p := range precedence {
		if slices.Contains(codes, p) {
			return p
		}
	}
	return exitOK
}
