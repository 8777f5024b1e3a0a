// Package decider is the state machine of a running workflow: a pure function from facts to what must follow.
package decider
