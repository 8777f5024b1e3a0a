// Command bench measures nf beside River and DBOS Transact on one private Postgres, and writes the ratios.
//
// It is a module of its own, so that what the peers need stays out of nf's. Each measure alternates the sides, A B A B …, each on a
// fresh database, with a CHECKPOINT before each run and syncing to disk switched on as a server has it by default; the medians
// are compared. Beside each figure stand the commits and bytes of write-ahead log that a step cost, and the processor time of
// server and client. Nothing else should run on the machine.
package main
