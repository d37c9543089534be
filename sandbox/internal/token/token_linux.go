// Package token names jails, and finds on the host the processes that carry the
// name of one.
package token

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// New returns a token for a jail of this process: its label, and who started it. It
// is an argument of the mechanism and the name of the control group, so a later start can tell
// the jails of a dead program from those of a living one.
//
//	<label>_<pid namespace>-<pid>-<start time of the process>-<number>
//
// It is a valid name of a container and of a unit, too.
func New(label string) string {
	return fmt.Sprintf("%s_%s-%d", label, Own(), jails.Add(1))
}

// parse is the reverse: a label holds no underscore.
func parse(token string) (label, starter string, ok bool) {
	label, rest, ok := strings.Cut(token, "_")
	starter, _, last := cutLast(rest, "-")
	return label, starter, ok && last && strings.Count(starter, "-") == 2
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

var jails atomic.Uint64

// Own is the identity of this process.
func Own() string { return Identity(os.Getpid()) }

// Identity tells a process from all others before and after it.
func Identity(pid int) string {
	f := Stat(pid)
	if len(f) < 20 {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", Namespace(), pid, f[19])
}

// Namespace is the process namespace of this process.
func Namespace() string {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return "0"
	}
	return strconv.FormatUint(st.Ino, 36)
}

// Orphan reports whether token belongs to a dead starter in our own process
// namespace: of those in others nothing can be known.
func Orphan(token string) (label string, ok bool) {
	label, starter, ok := parse(token)
	if !ok {
		return "", false
	}
	parts := strings.Split(starter, "-")
	pid := atoi(parts[1])
	now := Identity(pid)
	// Out of descriptors, say, nothing can be read of a living one either.
	unknown := now == "" && unix.Kill(pid, 0) != unix.ESRCH
	return label, parts[0] == Namespace() && now != starter && !unknown
}
