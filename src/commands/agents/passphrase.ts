import { open } from 'node:fs/promises'
import { ReadStream } from 'node:tty'
import { UnusableInput } from '../shared/arguments.ts'

/** Longest passphrase, in characters. */
const LONGEST = 1_024

const [INTERRUPT, END, DELETE, BACKSPACE] = ['\u0003', '\u0004', '\u007f', '\b']

/**
 * Asks for a passphrase on the terminal of this process, without echo. There is no other way to give a passphrase: no
 * option, no variable and no pipe, because an agent with a shell controls all of these. Rejects without a terminal.
 */
export async function askPassphrase(question: string): Promise<string> {
  const file = await open('/dev/tty', 'r+').catch(() => {
    throw new UnusableInput('a passphrase is read from a terminal only, and this process has none')
  })
  // A stream of its own: standard input may be a pipe.
  const terminal = new ReadStream(file.fd)
  try {
    terminal.setRawMode(true)
    terminal.setEncoding('utf8')
    await file.write(`${question}: `)
    const words = await readLine(terminal)
    await file.write('\r\n')
    return words
  } finally {
    terminal.setRawMode(false)
    terminal.destroy()
  }
}

function readLine(terminal: ReadStream): Promise<string> {
  let words = ''
  return new Promise((resolve, reject) => {
    terminal.on('data', (chunk: string) => {
      for (const character of chunk) {
        if (character === '\r' || character === '\n') return resolve(words)
        if (character === INTERRUPT || character === END)
          return reject(new UnusableInput('no passphrase was given'))
        if (character === DELETE || character === BACKSPACE) words = words.slice(0, -1)
        else if (words.length < LONGEST) words += character
      }
    })
    terminal.once('error', reject)
    terminal.once('end', () => reject(new UnusableInput('the terminal was closed')))
  })
}
