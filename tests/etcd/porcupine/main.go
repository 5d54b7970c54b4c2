// Asks Porcupine about histories of one register: a JSON array of operations a line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Op       string
	Ok       bool
	Value    int
	Expected int
	Start    float64
	End      float64
}

// What an absent key holds.
const absent = -2

// Parts of a history's unit of time that are told apart.
const fine = 1e6

var register = porcupine.Model{
	Init: func() interface{} { return absent },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		held, op := state.(int), input.(operation)
		switch {
		case op.Op == "read":
			return held == op.Value, held
		case op.Op == "write":
			return true, op.Value
		case op.Ok:
			return held == op.Expected, op.Value
		default:
			return held != op.Expected, held
		}
	},
}

func check(operations []operation) porcupine.CheckResult {
	var history []porcupine.Operation
	for _, op := range operations {
		history = append(history, porcupine.Operation{
			Input: op, Call: int64(op.Start * fine), Return: int64(op.End * fine),
		})
	}
	return porcupine.CheckOperationsTimeout(register, history, time.Minute)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var operations []operation
		if err := json.Unmarshal(lines.Bytes(), &operations); err != nil {
			panic(err)
		}
		fmt.Println(check(operations))
	}
}
