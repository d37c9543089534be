package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// intakeID is a UUIDv7 of the moment and the place where a submission was
// stored, so that it sorts as others do and can be computed again.
func intakeID(at time.Time, seq uint64) string {
	var id uuid.UUID
	sum := sha256.Sum256(fmt.Appendf(nil, "intake %d %d", at.UnixNano(), seq))
	copy(id[6:], sum[:])
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
