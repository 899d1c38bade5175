import { fileURLToPath } from 'node:url'
import { Program } from './program.ts'

const script = (name: string) => fileURLToPath(new URL(`../../fixtures/toolbox/${name}`, import.meta.url))

/** Returns the config entry of a toolbox the gateway runs. */
export function stdioToolbox(entry: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  return { command: process.execPath, args: [script('stdio.js')], ...entry }
}

export const stdioScript = script('stdio.js')

/** A toolbox behind HTTP, which can be killed and restarted on the same port. */
export class HttpToolbox {
  readonly #place: string
  program: Program
  readonly #env: Readonly<Record<string, string>>

  private constructor(place: string, program: Program, env: Readonly<Record<string, string>>) {
    this.#place = place
    this.program = program
    this.#env = env
  }

  static async start(env: Readonly<Record<string, string>> = {}): Promise<HttpToolbox> {
    const program = launch([], env)
    return new HttpToolbox(await placeOf(program), program, env)
  }

  get url(): string {
    return `http://${this.#place}/mcp`
  }

  /** Restarts the killed toolbox on the same port. */
  async revive(): Promise<void> {
    this.program = launch([this.#place], this.#env)
    await placeOf(this.program)
  }
}

function launch(place: readonly string[], env: Readonly<Record<string, string>>): Program {
  return new Program([script('http.js'), ...place], { env })
}

/** Waits until a toolbox listens; returns its host and port. */
const placeOf = (program: Program): Promise<string> =>
  program.line('the toolbox listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
