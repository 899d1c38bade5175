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
  readonly port: number
  program: Program
  readonly #env: Readonly<Record<string, string>>

  private constructor(port: number, program: Program, env: Readonly<Record<string, string>>) {
    this.port = port
    this.program = program
    this.#env = env
  }

  static async start(env: Readonly<Record<string, string>> = {}): Promise<HttpToolbox> {
    const program = launch(0, env)
    return new HttpToolbox(await portOf(program), program, env)
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/mcp`
  }

  /** Restarts the killed toolbox on the same port. */
  async revive(): Promise<void> {
    this.program = launch(this.port, this.#env)
    await portOf(this.program)
  }
}

function launch(port: number, env: Readonly<Record<string, string>>): Program {
  return new Program([script('http.js'), String(port)], { env })
}

function portOf(program: Program): Promise<number> {
  return program.line('the toolbox listens', (line) => {
    const port = /^listening (\d+)$/.exec(line)?.[1]
    return port === undefined ? undefined : Number(port)
  })
}
