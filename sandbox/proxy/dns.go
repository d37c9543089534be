package proxy

import (
	"encoding/binary"
	"net/netip"
)

// The little of the domain name system (RFC 1035) that the name service of a
// jail needs: questions come in, and an address or nothing goes out. Records
// are never read and compression never followed, because no question needs
// either.
const (
	dnsHeader    = 12
	dnsQuestions = 4 // offset of the number of questions
	dnsA         = 1
	dnsInternet  = 1

	dnsResponse      = 1 << 15 // bits of the flags
	dnsOpcode        = 15 << 11
	dnsAuthoritative = 1 << 10
	dnsDesired       = 1 << 8
	dnsAvailable     = 1 << 7

	dnsNotFound       = 3 // codes of answers
	dnsNotImplemented = 4
	dnsFormat         = 1

	dnsTTL = 30 // seconds; a name may be allowed, or the table be another, soon
)

// A question is one from a program inside.
type question struct {
	id, flags   uint16
	raw         []byte // the question as it was asked; an answer repeats it
	name        string // dots between labels; may hold anything
	kind, class uint16
}

// parseQuestion reads a message. code is not 0 where there is nothing to
// answer but that; ok is false where there is nothing to say at all.
func parseQuestion(b []byte) (q question, code int, ok bool) {
	if len(b) < dnsHeader {
		return q, 0, false
	}
	q.id, q.flags = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if q.flags&dnsResponse != 0 {
		return q, 0, false // two name services could talk for ever
	}
	if q.flags&dnsOpcode != 0 {
		return q, dnsNotImplemented, true
	}
	if binary.BigEndian.Uint16(b[dnsQuestions:]) != 1 {
		return q, dnsFormat, true
	}
	r := &reader{b: b[dnsHeader:]}
	var name []byte
	for {
		n := r.number(1)
		if n == 0 {
			break
		}
		label := r.take(n)
		if n > 63 || r.bad || len(name)+n > 253 {
			return q, dnsFormat, true
		}
		if name != nil {
			name = append(name, '.')
		}
		for _, c := range label {
			if c == '.' {
				c = ' ' // no valid name has one
			}
			name = append(name, c)
		}
	}
	q.name, q.kind, q.class = string(name), uint16(r.number(2)), uint16(r.number(2))
	if r.bad {
		return q, dnsFormat, true
	}
	q.raw = b[dnsHeader : len(b)-len(r.b)]
	return q, 0, true
}

// answer is the message that answers q: with an address, if that is valid,
// else with a code, or with the news that there is nothing of that kind.
func (q question) answer(code int, a netip.Addr) []byte {
	flags := uint16(dnsResponse|dnsAuthoritative|dnsAvailable) | q.flags&(dnsDesired|dnsOpcode) | uint16(code)
	b := binary.BigEndian.AppendUint16(nil, q.id)
	b = binary.BigEndian.AppendUint16(b, flags)
	count := func(is bool) {
		b = append(b, 0, 0)
		if is {
			b[len(b)-1] = 1
		}
	}
	count(q.raw != nil)
	count(a.IsValid())
	b = append(b, 0, 0, 0, 0)
	b = append(b, q.raw...)
	if a.IsValid() {
		b = append(b, 0xc0, dnsHeader) // the name of the question
		b = binary.BigEndian.AppendUint16(b, dnsA)
		b = binary.BigEndian.AppendUint16(b, dnsInternet)
		b = binary.BigEndian.AppendUint32(b, dnsTTL)
		b = binary.BigEndian.AppendUint16(b, 4)
		b = append(b, a.AsSlice()...)
	}
	return b
}
