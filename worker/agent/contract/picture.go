package contract

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/png"

	"github.com/penstock-run/penstock/jobs/control"
)

// Picture is a small image of one color.
func Picture(shade uint8) control.Image {
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for i := range img.Pix {
		img.Pix[i] = color.Gray{Y: shade}.Y
	}
	var b bytes.Buffer
	_ = png.Encode(&b, img) // a buffer takes everything
	return control.Image{Type: "image/png", Data: b.Bytes()}
}

// DataURL is an image as models get it.
func DataURL(i control.Image) string {
	return "data:" + i.Type + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
}
