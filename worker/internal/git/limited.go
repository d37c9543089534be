package git

import "io"

// A LimitedWriter takes Left bytes, then fails with Err, or drops the
// rest if Err is nil.
type LimitedWriter struct {
	To   io.Writer
	Left int64
	Err  error
}

func (l *LimitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.Left && l.Err != nil {
		return 0, l.Err
	}
	take := p[:min(int64(len(p)), l.Left)]
	l.Left -= int64(len(take))
	if _, err := l.To.Write(take); err != nil {
		return 0, err
	}
	return len(p), nil
}
