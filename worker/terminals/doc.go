// Package terminals has the terminals of an agent's jail: it opens them, shows
// them to whoever asks, takes what is typed, and records what they show.
//
//	jail ──▶ Set ──▶ kept bytes of each ──▶ answers to who looks
//	                      └──▶ events, and a recording as an artifact
//
// What a terminal shows is written by programs that nobody trusts. The last 256
// KiB are kept of each; who is slower than that finds a gap, with its size. More
// than 8 MiB a second are not read: the kernel stops the program that writes
// them. What is typed and not read waits, up to 64 KiB; then nothing more is
// taken until the program reads. Events and recording have the first MiB.
package terminals

import (
	"context"
	"io"
	"time"

	"github.com/penstock-run/penstock/jobs"
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
	Output func(...jobs.Event)
	// Keep stores a recording.
	Keep func(ctx context.Context, name string, content io.Reader) error
	// Clean removes the values of secrets from what goes through it.
	Clean func(io.Writer) io.WriteCloser
}
