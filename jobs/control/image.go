package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Bounds of the images of one prompt. A message with as many and as large images as
// are allowed fits the payload of 1 MiB that a broker takes by default, with what
// clients and dispatchers put around it.
const (
	MaxImages     = 4
	MaxImageBytes = 512 << 10 // of all of them together
	// MaxEncoded bounds a message with images: [MaxBytes], and the images in base64.
	MaxEncoded = MaxBytes + MaxImageBytes/3*4 + 4*MaxImages
)

// ImageTypes are the media types of images that a prompt may have.
var ImageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// An Image belongs to a prompt.
type Image struct {
	Type string `json:"type"` // one of [ImageTypes]
	Data []byte `json:"data"`
}

// A StoredImage says where an image of an accepted prompt is kept: it is an artifact
// of the attempt with that epoch.
type StoredImage struct {
	Type     string `json:"type" jsonschema:"image/png, image/jpeg, image/gif or image/webp."`
	Bytes    int64  `json:"bytes" jsonschema:"Its size."`
	SHA256   string `json:"sha256" jsonschema:"Its checksum."`
	Artifact string `json:"artifact" jsonschema:"The name of the artifact that has it."`
	Epoch    uint64 `json:"epoch" jsonschema:"The epoch of the attempt that has this artifact."`
}

// Stored says where the attempt with that epoch keeps the image. The same image has
// the same name.
func (i Image) Stored(epoch uint64) StoredImage {
	sum := sha256.Sum256(i.Data)
	hash := hex.EncodeToString(sum[:])
	return StoredImage{
		Type: i.Type, Bytes: int64(len(i.Data)), SHA256: hash, Epoch: epoch,
		Artifact: "image-" + hash[:16] + "." + strings.TrimPrefix(i.Type, "image/"),
	}
}

// ImageType returns the media type of an image by its first bytes, or "" if it has
// none of [ImageTypes].
func ImageType(data []byte) string {
	begins := func(magic string) bool { return bytes.HasPrefix(data, []byte(magic)) }
	switch {
	case begins("\x89PNG\r\n\x1a\n"):
		return "image/png"
	case begins("\xff\xd8\xff"):
		return "image/jpeg"
	case begins("GIF87a"), begins("GIF89a"):
		return "image/gif"
	case begins("RIFF") && len(data) >= 12 && string(data[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}

// DescribeImages says for people how many images there are, and what each is:
// "1 image (image/png, 12 KiB)".
func DescribeImages(images []StoredImage) string {
	noun := "images"
	if len(images) == 1 {
		noun = "image"
	}
	var each []string
	for _, i := range images {
		each = append(each, fmt.Sprintf("%s, %d KiB", i.Type, (i.Bytes+1023)/1024))
	}
	return fmt.Sprintf("%d %s (%s)", len(images), noun, strings.Join(each, "; "))
}

// WithoutImages is the text of a message for an agent that does not get so many of its
// images, with the reason.
func WithoutImages(text string, n int, why string) string {
	if n == 0 {
		return text
	}
	return strings.TrimSpace(fmt.Sprintf("%s\n\n[%d of the images of this message are left out, %s.]", text, n, why))
}

// validateImages reports what is wrong with the images of a message.
func (c Message) validateImages(found *findings) {
	if n := len(c.Images); n > MaxImages {
		found.add("images", fmt.Errorf("are %d, at most %d are allowed in a message", n, MaxImages))
	}
	if n := c.imageBytes(); n > MaxImageBytes {
		found.add("images", fmt.Errorf("have %d bytes together, at most %d are allowed: scale them down", n, MaxImageBytes))
	}
	for n, i := range c.Images {
		field := fmt.Sprintf("images[%d]", n)
		switch is := ImageType(i.Data); {
		case !slices.Contains(ImageTypes, i.Type):
			found.add(field+".type", fmt.Errorf("%.100q is not allowed; use one of %v", i.Type, ImageTypes))
		case is == "":
			found.add(field+".data", fmt.Errorf("does not begin as an image of type %s does", i.Type))
		case is != i.Type:
			found.add(field+".type", fmt.Errorf("is %s, and its data is of type %s", i.Type, is))
		}
	}
}

// imageBytes is the size of all images together.
func (c Message) imageBytes() int {
	n := 0
	for _, i := range c.Images {
		n += len(i.Data)
	}
	return n
}
