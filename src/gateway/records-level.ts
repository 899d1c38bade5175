import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** The LevelDB functions that the store uses. All reject with an error that has LevelDB's `code`. */
export interface Level {
  open(): Promise<void>
  /** Repairs a damaged, closed database as far as possible. */
  repair(): Promise<void>
  batch(changes: readonly Change[]): Promise<void>
  /** All entries, in batches. */
  entries(): AsyncIterable<readonly Entry[]>
  close(): Promise<void>
}

export type Entry = readonly [key: string, value: string]

export type Change =
  | { readonly type: 'put'; readonly key: string; readonly value: string }
  | { readonly type: 'del'; readonly key: string }

/** Requests to the LevelDB process; `next` returns the entries after the last `next`. */
export type Asked =
  | { readonly what: 'open' | 'repair' | 'next' | 'close' }
  | { readonly what: 'batch'; readonly changes: readonly Change[] }

export interface Answer {
  readonly entries?: readonly Entry[]
  readonly failure?: { readonly code: string | undefined; readonly message: string }
}

const program = fileURLToPath(new URL('./records-process.js', import.meta.url))

interface Waiting {
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: Error) => void
}

/**
 * A LevelDB in a child process. Each program inherits the file descriptors of the process that starts it, even under
 * another user. The gateway starts servers, so LevelDB's descriptors must be in another process. After a kill of the
 * gateway, the child lives until pending writes are done.
 */
export class LevelProcess implements Level {
  readonly #folder: string
  #child: ChildProcess | undefined
  /** The requests without an answer. Answers come in the order of requests. */
  readonly #waiting: Waiting[] = []

  constructor(folder: string) {
    this.#folder = folder
  }

  async open(): Promise<void> {
    this.#child ??= this.#start()
    try {
      await this.#ask({ what: 'open' })
    } catch (error) {
      // Keeps the process for a repair if the database is corrupt.
      if ((error as NodeJS.ErrnoException).code !== 'LEVEL_CORRUPTION') this.#end()
      throw error
    }
  }

  async repair(): Promise<void> {
    await this.#ask({ what: 'repair' })
  }

  async batch(changes: readonly Change[]): Promise<void> {
    await this.#ask({ what: 'batch', changes })
  }

  async *entries(): AsyncIterable<readonly Entry[]> {
    for (;;) {
      const { entries = [] } = await this.#ask({ what: 'next' })
      if (entries.length === 0) return
      yield entries
    }
  }

  async close(): Promise<void> {
    if (this.#child === undefined) return
    try {
      await this.#ask({ what: 'close' })
    } finally {
      this.#end()
    }
  }

  #start(): ChildProcess {
    // Detached: Ctrl-C must not end the child. Empty env: our environment may hold secrets.
    const child = fork(program, [this.#folder], {
      cwd: '/',
      env: {},
      execArgv: ['--max-semi-space-size=1'],
      detached: true,
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    const lost = (why: string) => {
      if (this.#child !== child) return
      this.#child = undefined
      for (const { reject } of this.#waiting.splice(0))
        reject(Object.assign(new Error(`the process of the store ${why}`), { code: 'LEVEL_PROCESS_LOST' }))
    }
    child.on('message', (answer: Answer) => this.#answered(answer))
    child.once('error', ({ message }) => lost(`cannot be started (${message})`))
    child.once('exit', (code, signal) => lost(`ended (${signal ?? `exit code ${code}`})`))
    child.once('disconnect', () => lost('was lost'))
    child.unref()
    child.channel?.unref()
    return child
  }

  #end(): void {
    const child = this.#child
    this.#child = undefined
    if (child?.connected) child.disconnect()
  }

  #answered(answer: Answer): void {
    const { resolve, reject } = this.#waiting.shift() ?? {}
    if (this.#waiting.length === 0) this.#child?.channel?.unref()
    const { failure } = answer
    if (failure === undefined) resolve?.(answer)
    else reject?.(Object.assign(new Error(failure.message), { code: failure.code }))
  }

  #ask(asked: Asked): Promise<Answer> {
    const child = this.#child
    if (child === undefined) return Promise.reject(new Error('the process of the store has ended'))
    // Keeps the gateway's event loop alive only during a request.
    child.channel?.ref()
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
      // Ignores send errors: the `exit` or `disconnect` event rejects all requests.
      child.send(asked, () => undefined)
    })
  }
}
