// Package scrub blanks secrets in streams. No I/O.
package scrub

import "bytes"

// A scrubber blanks a secret in a stream, wherever the stream is cut into pieces. It
// holds back no more than the beginning of what may be the secret.
type scrubber struct {
	secret []byte
	held   []byte
}

// next returns the bytes of those held and p that may pass. The result is valid until
// the next call.
func (s *scrubber) next(p []byte) []byte {
	if len(s.held) == 0 && !bytes.Contains(p, s.secret) && s.overlap(p) == 0 {
		return p // nearly always
	}
	all := bytes.ReplaceAll(append(s.held, p...), s.secret, bytes.Repeat([]byte("*"), len(s.secret)))
	keep := s.overlap(all)
	s.held = append([]byte(nil), all[len(all)-keep:]...)
	return all[:len(all)-keep]
}

// rest returns the bytes that are still held, at the end.
func (s *scrubber) rest() []byte { return s.held }

// A Stream blanks the secrets in one stream.
type Stream []*scrubber

// New returns a stream without the secrets, none of which is empty.
func New(secrets ...string) Stream {
	var all Stream
	for _, s := range secrets {
		all = append(all, &scrubber{secret: []byte(s)})
	}
	return all
}

// Next returns the bytes of those held and p that may pass. The result is valid until
// the next call.
func (all Stream) Next(p []byte) []byte {
	for _, s := range all {
		p = s.next(p)
	}
	return p
}

// Rest returns the bytes that are still held, at the end.
func (all Stream) Rest() []byte {
	var end []byte
	for _, s := range all {
		end = append(bytes.Clone(s.next(end)), s.rest()...)
	}
	return end
}

// overlap is the length of the longest end of p that is a beginning of the secret.
func (s *scrubber) overlap(p []byte) int {
	for n := min(len(p), len(s.secret)-1); n > 0; n-- {
		if bytes.HasSuffix(p, s.secret[:n]) {
			return n
		}
	}
	return 0
}
