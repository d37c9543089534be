// Package jobs defines the vocabulary of Penstock: what a job is, what may
// happen to it, which events report it, and what it leaves behind.
//
//	           ┌───────── delayed ◀── run_at, back-off before the next attempt
//	           ▼             ▲
//	submit ─▶ pending ─claim─▶ executing ─▶ finished (outcome, reason)
//	           ▲             │      │
//	           └── requeue ──┘      └─▶ waiting (parked: no slot is held)
//
// A [Job] is the request as a person or a program wrote it. A [Record] is
// what the pool knows about it. The record's revision in the store is the
// lease: the process that updated it last may act. Every claim begins an attempt,
// whose epoch is the revision that the claim wrote. An [Event] is one line of a
// session's log. A [Result] is what remains when the job has finished.
//
// The package holds values only. It opens no connection, starts no goroutine
// and logs nothing, so every other package may import it.
package jobs
