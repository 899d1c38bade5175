import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { bound } from './bound.ts'
import { until } from './until.ts'

/** Why no program can run on a pseudo-terminal here; undefined if `script` of util-linux can start programs. */
export const noTerminal: string | undefined = /util-linux/.test(
  spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout ?? '',
)
  ? undefined
  : 'there is no `script` of util-linux to make a pseudo-terminal with'

/** Terminal control sequences. */
const SEQUENCES = /\u001b\[[0-9;?]*[A-Za-z]/g

/** A program whose standard streams are all a terminal, 100 characters wide. */
export class TerminalProgram {
  readonly child: ChildProcess
  readonly ended: Promise<number | null>
  /** All output, as the terminal got it. */
  raw = ''

  constructor(
    args: readonly string[],
    { env = {}, cwd }: { readonly env?: NodeJS.ProcessEnv; readonly cwd?: string } = {},
  ) {
    const command = `stty cols 100; exec ${[process.execPath, ...args].map(quoted).join(' ')}`
    this.child = spawn('script', ['-qefc', command, '/dev/null'], {
      stdio: ['pipe', 'pipe', 'inherit'],
      cwd,
      env: bound({ ...process.env, TERM: 'xterm', ...env }),
    })
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => (this.raw += text))
    this.ended = once(this.child, 'close').then(([code]) => code as number | null)
  }

  /** Output lines without control sequences; an overwritten line counts separately. */
  get lines(): string[] {
    return this.raw.replace(SEQUENCES, '').split(/\r?\n|\r/)
  }

  /** Waits until the output matches. */
  async says(what: RegExp): Promise<void> {
    const isSaid = () => what.test(this.raw.replace(SEQUENCES, ''))
    await until(String(what), isSaid).catch((error: Error) => {
      throw new Error(`${error.message}; it said: ${this.raw}`)
    })
  }

  /** Ctrl-C; resolves to the exit code. */
  async interrupt(): Promise<number | null> {
    this.child.stdin?.write('\u0003')
    return this.ended
  }

  /** Kills the program. */
  kill(): void {
    this.child.kill('SIGKILL')
  }
}

const quoted = (word: string) => `'${word.replaceAll("'", `'\\''`)}'`
