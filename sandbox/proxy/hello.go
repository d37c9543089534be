package proxy

import (
	"bufio"
	"encoding/binary"
	"errors"
)

// Numbers of TLS.
const (
	recordAlert     = 21
	recordHandshake = 22
	clientHello     = 1
	extensionName   = 0
	extensionHidden = 0xfe0d // encrypted client hello: the real name is inside
	recordHeader    = 5
)

// A hello is what matters of a ClientHello.
type hello struct {
	name   string
	hidden bool
}

var errHello = errors.New("not a client hello")

// readHello reads a ClientHello without consuming it. It may be spread over
// several records.
func readHello(br *bufio.Reader) (hello, error) {
	var message []byte
	for offset := 0; ; {
		header, err := br.Peek(offset + recordHeader)
		if err != nil {
			return hello{}, err
		}
		header = header[offset:]
		size := int(binary.BigEndian.Uint16(header[3:]))
		if header[0] != recordHandshake || header[1] != 3 || size == 0 || size > 1<<14 {
			return hello{}, errHello
		}
		all, err := br.Peek(offset + recordHeader + size)
		if err != nil {
			return hello{}, err
		}
		message = append(message, all[offset+recordHeader:]...)
		offset += recordHeader + size
		if len(message) < 4 {
			continue
		}
		if message[0] != clientHello {
			return hello{}, errHello
		}
		if need := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3]); len(message) >= need {
			return parseHello(message[4:need])
		}
	}
}

// parseHello reads the body of a ClientHello.
func parseHello(b []byte) (h hello, err error) {
	r := &reader{b: b}
	r.skip(2 + 32)      // version, random
	r.skip(r.number(1)) // session
	r.skip(r.number(2)) // ciphers
	r.skip(r.number(1)) // compression
	if len(r.b) == 0 && !r.bad {
		return h, nil // before extensions existed
	}
	extensions := &reader{b: r.take(r.number(2)), bad: r.bad || len(r.b) != 0}
	seen := map[int]bool{}
	for len(extensions.b) > 0 && !extensions.bad {
		kind := extensions.number(2)
		body := extensions.take(extensions.number(2))
		if seen[kind] {
			return h, errHello
		}
		seen[kind] = true
		switch kind {
		case extensionName:
			if h.name, err = serverName(body); err != nil {
				return h, err
			}
		case extensionHidden:
			h.hidden = true
		}
	}
	if extensions.bad {
		return h, errHello
	}
	return h, nil
}

// serverName accepts exactly one name, of the only type there is.
func serverName(b []byte) (string, error) {
	r := &reader{b: b}
	list := &reader{b: r.take(r.number(2))}
	kind := list.number(1)
	raw := string(list.take(list.number(2)))
	name, ok := normal(raw)
	if r.bad || list.bad || len(r.b) > 0 || len(list.b) > 0 || kind != 0 || !ok {
		return "", errHello
	}
	return name, nil
}

// A reader takes numbers and pieces from the front, and remembers if there
// was not enough.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) skip(n int) { r.take(n) }

func (r *reader) number(size int) (n int) {
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}
