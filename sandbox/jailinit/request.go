package jailinit

import (
	"bytes"
	"errors"
	"strconv"
)

// A Request asks the connector, the process that stays inside for that, to do
// what can only be done from within the jail.
//
//	runner ──id NUL verb NUL argument NUL argument…──▶ connector
//	runner ◀──id NUL errno, and one descriptor if 0─── connector
//
// Each is one message of a SOCK_SEQPACKET pair of its own, so there is no
// framing. Answers come in any order, and exactly one to each id; one that is
// cancelled gets ECANCELED. Ids count up from 1. A verb that is not known gets
// ENOSYS.
type Request struct {
	ID   uint64
	Verb string
	Args []string
}

// The verbs of a Request.
const (
	// VerbDial connects to Args[1] in the network Args[0]: "tcp" and an
	// address with a port, or "unix" and a path. The answer's descriptor is
	// the connected socket, so nothing inside relays bytes.
	VerbDial = "dial"
	// VerbTerminal starts a program in a new terminal of Args[0] rows and
	// Args[1] columns. Two descriptors come with it: a Config, of which Args is
	// the program and Env is put over the agent's own environment, and the
	// writing end of a pipe. The answer's descriptor is the terminal's other
	// side. The pipe says how the program ended, see DecodeEnd; who closes its
	// reading end hangs up.
	VerbTerminal = "terminal"
	// VerbCancel gives the request of the same id up. It has no answer.
	VerbCancel = "cancel"
)

// MaxMessage is the length that no request or answer exceeds.
const MaxMessage = 512

// An Answer is what became of a Request.
type Answer struct {
	ID    uint64
	Errno int // 0: it worked, and the descriptor comes with this message
}

var errMessage = errors.New("malformed message")

// Encode returns r as one message. Arguments contain no NUL.
func (r Request) Encode() []byte {
	return []byte(strconv.FormatUint(r.ID, 10) + "\x00" + join(append([]string{r.Verb}, r.Args...), "\x00"))
}

func decodeRequest(b []byte) (Request, error) {
	fields := split(string(b), "\x00")
	if len(fields) < 2 {
		return Request{}, errMessage
	}
	id, err := parseNumber([]byte(fields[0]))
	return Request{id, fields[1], fields[2:]}, err
}

func (a Answer) encode() []byte {
	return []byte(strconv.FormatUint(a.ID, 10) + "\x00" + strconv.Itoa(a.Errno))
}

// DecodeAnswer reads what came out of the jail, and trusts none of it.
func DecodeAnswer(b []byte) (Answer, error) {
	first, second, _ := bytes.Cut(b, []byte{0})
	id, err := parseNumber(first)
	if err != nil {
		return Answer{}, err
	}
	errno, err := parseNumber(second)
	if err != nil || errno > 4095 { // the largest that the kernel returns
		return Answer{}, errMessage
	}
	return Answer{ID: id, Errno: int(errno)}, nil
}

// DecodeEnd reads what the pipe of a terminal said: the code and the signal
// with which its program ended. It trusts none of it.
func DecodeEnd(b []byte) (code, signal int, err error) {
	if len(b) != 2 || b[1] > 64 {
		return 0, 0, errMessage
	}
	return int(b[0]), int(b[1]), nil
}

// parseNumber accepts the one way to write a number, and no sign.
func parseNumber(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != string(b) {
		return 0, errMessage
	}
	return n, nil
}
