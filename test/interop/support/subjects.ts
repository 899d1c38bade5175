import { createRequire } from 'node:module'
import { dirname, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startConformanceServer } from '../../fixtures/conformance-server.ts'
import { startModernServer } from '../../fixtures/modern-server.ts'

interface Request {
  readonly name: string
  readonly args?: Readonly<Record<string, unknown>>
  readonly expect: RegExp
}

/** A server of the matrix, and its offers. */
export interface Subject {
  readonly title: string
  readonly name: string
  readonly tool: Request
  readonly prompt: Request
  readonly resource: Request
  readonly progress: Request & { readonly steps: readonly number[] }
  readonly elicitation: Request
}

const fixture = {
  tool: { name: 'test_simple_text', expect: /simple text/ },
  prompt: { name: 'test_simple_prompt', expect: /simple prompt/ },
  resource: { name: 'test://static-text', expect: /static text resource/ },
  progress: { name: 'test_tool_with_progress', expect: /successfully/, steps: [0, 50, 100] },
} satisfies Partial<Subject>

const asksLegacy = {
  name: 'test_elicitation',
  args: { message: 'Who are you?' },
  expect: /action=accept, content=\{.*"username":"Ada".*\}/,
}

export const subjects: readonly Subject[] = [
  { title: 'v1 over HTTP', name: 'legacy_http', ...fixture, elicitation: asksLegacy },
  { title: 'v1 over stdio', name: 'legacy_stdio', ...fixture, elicitation: asksLegacy },
  {
    title: 'v2, modern HTTP',
    name: 'modern_http',
    ...fixture,
    elicitation: { name: 'test_input_required_result_elicitation', expect: /Hello, Ada!/ },
  },
  {
    title: 'everything, stdio',
    name: 'everything',
    tool: { name: 'echo', args: { message: 'ahoy' }, expect: /Echo: ahoy/ },
    prompt: { name: 'simple-prompt', expect: /simple prompt/ },
    resource: { name: 'demo://resource/static/document/features.md', expect: /Features/ },
    progress: {
      name: 'trigger-long-running-operation',
      args: { duration: 0.1, steps: 3 },
      expect: /completed/,
      steps: [1, 2, 3],
    },
    elicitation: { name: 'trigger-elicitation-request', expect: /provided the requested information/ },
  },
]

/** The user's values for every form of these servers. */
export const form = { name: 'Ada', username: 'Ada', email: 'ada@example.com' }

export interface RunningSubjects {
  readonly entries: Readonly<Record<string, unknown>>
  close(): Promise<void>
}

export async function startSubjects(): Promise<RunningSubjects> {
  const [legacy, modern] = await Promise.all([startConformanceServer(), startModernServer()])
  const manifest = createRequire(import.meta.url).resolve(
    '@modelcontextprotocol/server-everything/package.json',
  )
  const node = (...args: readonly string[]) => ({ command: process.execPath, args })
  return {
    entries: {
      legacy_http: { url: legacy.url },
      legacy_stdio: node(fileURLToPath(new URL(`legacy-stdio${extname(import.meta.url)}`, import.meta.url))),
      modern_http: { url: modern.url },
      everything: node(join(dirname(manifest), 'dist', 'index.js'), 'stdio'),
    },
    async close() {
      await Promise.all([legacy.close(), modern.close()])
    },
  }
}
