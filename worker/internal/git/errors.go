package git

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// Conditions that git reports, besides those of system calls.
var (
	// ErrNoObject: the remote does not have the requested object, or refuses it.
	ErrNoObject = errors.New("remote does not have the object")
	// ErrIncomplete: the remote is a partial clone, and the request needs objects that
	// it has never fetched itself.
	ErrIncomplete = errors.New("remote is a partial clone without these objects")
	// ErrCredentials: the remote requires credentials, or other ones.
	ErrCredentials = errors.New("remote does not accept the credentials")
	// ErrFormat: this host's git cannot read a repository of that format.
	ErrFormat = errors.New("git here cannot read the repository's format")
)

// ErrNoRepository: there is no repository around a directory.
var ErrNoRepository = errors.New("not a git repository")

// An Error is a git command that failed. Its text holds no credentials.
type Error struct {
	Command string // "fetch"
	Code    int    // its exit status; -1 if a signal ended it
	Message string // the last lines that git printed
	cause   error
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("git %s: exit status %d", e.Command, e.Code)
	}
	return fmt.Sprintf("git %s: %s", e.Command, e.Message)
}

// Unwrap returns the condition that git reported, if it is a known one: [ErrNoObject],
// [ErrIncomplete], [ErrCredentials], [ErrFormat], [ErrNoRepository], ENOSPC or EDQUOT.
func (e *Error) Unwrap() error { return e.cause }

// conditions are the parts of git's messages that callers distinguish.
var conditions = []struct {
	text  string
	cause error
}{
	{"No space left on device", syscall.ENOSPC},
	{"Disk quota exceeded", syscall.EDQUOT},
	{"not a git repository (or any", ErrNoRepository},
	{"from promisor remote", ErrIncomplete},
	{"lazy fetching disabled", ErrIncomplete},
	{"unknown repository extension", ErrFormat},
	{"unknown ref storage format", ErrFormat},
	{"Expected git repo version", ErrFormat},
	{"mismatched algorithms", ErrNoObject}, // an id of SHA-1 in a repository of SHA-256
	{"terminal prompts disabled", ErrCredentials},
	{"could not read Username", ErrCredentials},
	{"could not read Password", ErrCredentials},
	{"Authentication failed for", ErrCredentials},
	{"Permission denied (", ErrCredentials}, // of ssh: "(publickey,password)."
	{"Host key verification failed", ErrCredentials},
	{"not our ref", ErrNoObject},
	{"unadvertised object", ErrNoObject},
	{"find remote ref", ErrNoObject},
}

func newError(args []string, err error, stderr string) *Error {
	e := &Error{Command: args[0], Code: -1, Message: lastWords(stderr)}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		e.Code = exit.ExitCode()
		if e.Message == "" {
			e.Message = exit.Error()
		}
	} else {
		e.Message, e.cause = err.Error(), err
	}
	for _, c := range conditions {
		if strings.Contains(stderr, c.text) {
			e.cause = c.cause
			if !strings.Contains(e.Message, c.text) {
				// Messages of a helper, such as ssh, whose lines git does not mark.
				e.Message = Redact(lineWith(stderr, c.text)) + "; " + e.Message
			}
			break
		}
	}
	return e
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return part
}

// continued joins the lines of one message, such as the list of extensions
// that git does not know.
var continued = strings.NewReplacer(":\n\t", ": ", "\n\t", ", ")

// lastWords returns the lines in which git states the error, at most three.
func lastWords(stderr string) string {
	var said []string
	for line := range strings.Lines(continued.Replace(stderr)) {
		line = strings.TrimSpace(line)
		for _, mark := range []string{"fatal: ", "error: ", "remote: ", "ssh: ", "warning: "} {
			if rest, ok := strings.CutPrefix(line, mark); ok && (mark != "warning: ") {
				said = append(said, rest)
			}
		}
	}
	if len(said) == 0 {
		said = []string{strings.TrimSpace(stderr)}
	}
	if len(said) > 3 {
		said = said[len(said)-3:]
	}
	return Redact(strings.Join(said, "; "))
}

var (
	userinfo = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s'"]*@`) })
	query    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s'"?]*)\?[^\s'"]*`) })
)

// Redact removes from text everything that a URL may contain besides its address: user,
// password, query.
func Redact(text string) string {
	return query().ReplaceAllString(userinfo().ReplaceAllString(text, "$1"), "$1")
}
