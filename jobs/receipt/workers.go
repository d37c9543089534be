package receipt

import (
	"bufio"
	"crypto/ed25519"
	"fmt"
	"io"
	"strings"
)

// A Worker is one that a pool knows: the name of its credential, and the key that belongs to it.
type Worker struct {
	Name string
	Key  ed25519.PublicKey
}

// Workers are the workers of a pool. One name may have several keys, of credentials that
// followed each other; a key has one name.
type Workers []Worker

// ParseWorkers reads a list, which has a line for each worker: its name, a space and its key.
// Empty lines, and those that begin with #, are passed over.
func ParseWorkers(r io.Reader) (Workers, error) {
	var all Workers
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d is not a worker's name and its key", n)
		}
		key, err := ParseKeyID(fields[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if other, ok := all.having(key); ok && other.Name != fields[0] {
			return nil, fmt.Errorf("line %d: the key of %s is that of %s, too", n, fields[0], other.Name)
		}
		all = append(all, Worker{fields[0], key})
	}
	return all, lines.Err()
}

// Signer finds the worker whose key has signed a receipt. Its error is an [InvalidError]: the key
// is none of these workers', or the statement names another one of them as the worker that ran
// the job. That name is the worker's own choice, and proves nothing; a name that is in no line
// is passed over.
func (all Workers) Signer(r *Receipt) (Worker, error) {
	signer, ok := all.having(r.Key)
	if !ok {
		return Worker{}, &InvalidError{"key", "the statement is signed by " + KeyID(r.Key) + ", which is the key of no worker of the list"}
	}
	said := r.Statement.Predicate.BuildDefinition.InternalParameters.Worker
	for _, w := range all {
		if w.Name == said && signer.Name != said {
			return signer, &InvalidError{"worker", fmt.Sprintf("the statement says that it is of %s, and it is signed by %s", said, signer.Name)}
		}
	}
	return signer, nil
}

func (all Workers) having(key ed25519.PublicKey) (Worker, bool) {
	for _, w := range all {
		if w.Key.Equal(key) {
			return w, true
		}
	}
	return Worker{}, false
}
