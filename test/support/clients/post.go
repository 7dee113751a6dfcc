// Posts twice with net/http, over one connection if the server keeps it. Prints a JSON list.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

type job struct {
	Port    int
	Path    string
	Start   string
	Bytes   int
	Chunked bool
}

// Hides the length, so that net/http sends chunks.
type unsized struct{ io.Reader }

func main() {
	var wanted job
	if err := json.Unmarshal([]byte(os.Args[1]), &wanted); err != nil {
		panic(err)
	}
	var answers [][2]any
	for range 2 {
		var body io.Reader = bytes.NewReader(append([]byte(wanted.Start), bytes.Repeat([]byte("x"), wanted.Bytes)...))
		if wanted.Chunked {
			body = unsized{body}
		}
		url := fmt.Sprintf("http://127.0.0.1:%d%s", wanted.Port, wanted.Path)
		response, err := http.Post(url, "text/plain", body)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			panic(err)
		}
		response.Body.Close()
		answers = append(answers, [2]any{response.StatusCode, string(text)})
	}
	printed, _ := json.Marshal(answers)
	fmt.Println(string(printed))
}
