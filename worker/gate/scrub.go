package gate

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

// overlap is the length of the longest end of p that is a beginning of the secret.
func (s *scrubber) overlap(p []byte) int {
	for n := min(len(p), len(s.secret)-1); n > 0; n-- {
		if bytes.HasSuffix(p, s.secret[:n]) {
			return n
		}
	}
	return 0
}
