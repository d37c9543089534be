// Package terminals runs the terminals of an agent's jail: it opens them, serves
// their output to viewers, takes what is typed, and records what they show.
//
//	jail ──▶ Set ──▶ kept bytes of each ──▶ answers to viewers
//	                      └──▶ events, and a recording as an artifact
//
// Untrusted programs write what a terminal shows. The last 256 KiB of each are
// kept; a viewer that is slower than that finds a gap, with its size. The set reads
// at most 8 MiB a second: beyond that the kernel stops the program that writes
// them. Typed input that the program does not read waits, up to 64 KiB; then no more
// is accepted until the program reads. Events and recording have the first MiB.
package terminals

import (
	"context"
	"io"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
)

// Bounds of one terminal.
const (
	kept     = 256 << 10 // bytes that it has shown last
	pending  = 64 << 10  // bytes that were typed and not read
	recorded = 1 << 20   // bytes that its events and its recording have
	typists  = 64        // who have typed in it
	pace     = 8 << 20   // bytes a second
)

// maxEver is how many terminals one run of an agent opens, all in all.
const maxEver = 100

// Own is who opens the terminals of the agent itself. It may have maxOwn open,
// so that there is a place for people.
const (
	Own    = "agent"
	maxOwn = 4
)

// How often what a terminal shows becomes an event, and by how much.
const (
	eventEvery = 250 * time.Millisecond
	eventBytes = 16 << 10
)

// Config says what a Set does its work with.
type Config struct {
	Attempt int
	First   int // the number of the first terminal
	// Start starts a program, see [sandbox.Process.Terminal].
	Start func(ctx context.Context, args, env []string, rows, columns uint16) (*sandbox.Terminal, error)
	// Prove appends an event. An error that is [jobs.ErrFenced] means that
	// another attempt has the session.
	Prove func(context.Context, jobs.Event) error
	// Output appends events that may be too many.
	Output func(...event.Event)
	// Keep stores a recording.
	Keep func(ctx context.Context, name string, content io.Reader) error
	// Clean removes the values of secrets from what goes through it.
	Clean func(io.Writer) io.WriteCloser
}
