import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { readPage, readPages } from './pages.ts'

/** Commands of the pages: how each block is run, the output it must print, and why some blocks are left out. */

/** Pages with commands, besides README and those of `docs`. */
const others = [
  'CONTRIBUTING.md',
  'bench/README.md',
  'config/scenarios/README.md',
  'deploy/README.md',
  'deploy/RUNBOOK.md',
]

interface LeftOut {
  readonly page: string
  /** A text in the block. */
  readonly text: string
  readonly why: string
}

/** Blocks that are not run. */
const leftOut: readonly LeftOut[] = [
  {
    page: 'docs/guarded-experiments.md',
    text: 'start --config config/drills.yaml',
    why: 'runs a gateway of its own, at the ports of the quickstart; test/e2e/experiments/library runs it',
  },
  {
    page: 'docs/guarded-experiments.md',
    text: 'experiment plan',
    why: 'needs that gateway; test/e2e/experiments/library plans all of them, and runs the drill',
  },
  {
    page: 'docs/gamedays.md',
    text: 'gameday run',
    why: 'other pages inject faults meanwhile; test/e2e/experiments/gameday runs one, and plans this one',
  },
  { page: 'docs/connect.md', text: 'claude mcp add', why: 'needs Claude Code' },
  {
    page: 'docs/kubernetes.md',
    text: 'kubectl apply',
    why: 'needs a cluster; test/deploy/kubernetes checks the manifests',
  },
  { page: 'docs/kubernetes.md', text: 'kubectl port-forward', why: 'needs a cluster' },
  {
    page: 'deploy/README.md',
    text: 'docker compose -f deploy/compose.yaml up',
    why: 'needs Docker and images of others; test/deploy/image and provisioning check the files',
  },
  { page: 'deploy/README.md', text: 'exec -e BREAKWATER_TOKEN', why: 'needs what docker compose starts' },
  {
    page: 'deploy/README.md',
    text: 'npm run dashboards',
    why: 'needs Prometheus: a step of its own of .ci/run',
  },
  { page: 'bench/README.md', text: 'npm run bench ', why: 'measures for minutes, and needs an idle machine' },
  {
    page: 'bench/README.md',
    text: 'npm run bench:replay',
    why: 'measures for minutes; test/e2e/replay does the same in seconds',
  },
  {
    page: 'bench/README.md',
    text: 'npm run bench:scrape',
    why: 'measures for minutes, and needs an idle machine',
  },
  { page: 'bench/README.md', text: 'npm run bench:defaults', why: 'measures for minutes' },
  {
    page: 'bench/README.md',
    text: 'npm run bench:hostile',
    why: 'measures for minutes, and needs an idle machine',
  },
  ...['bench/README.md', 'docs/growth.md'].flatMap((page) =>
    ['npm run bench:growth', 'npm run bench:streams'].map((text) => ({
      page,
      text,
      why: 'measures for minutes, and needs an idle machine',
    })),
  ),
]

/** Texts that the output of a page's blocks must contain. */
const told: Readonly<Record<string, readonly RegExp[]>> = {
  'README.md': [
    /"Echo: hello"/,
    /^fault-\d+: conn\.latency at memory for 1m$/m,
    /"entities"/,
    /^fault-\d+ +conn\.latency +memory\/\* .* 1(?: +\d+)?$/m,
    /^cleared 1 fault$/m,
    /gateway\.yaml is valid/,
  ],
  'docs/tutorial.md': [
    /^memory +up /m,
    /"Echo: hello"/,
    /"name":"memory__read_graph"/,
    /hit: .* delayed: the agent had to wait$/m,
    /^breakwater_fault_outcomes_total\{.*fate="delayed"\} [1-9]/m,
    /^with resilience +TCAF=8\.0 /m,
    /^All \d+ sums add up\.$/m,
    /"code":-32603/,
    /"entities"/,
    /^breakwater_gate_transitions_total\{server="memory",state="open"\} [1-9]/m,
    /^breakwater_retries_total\{server="memory",decision="sent"\} [1-9]/m,
    /"Echo: one"/,
    /"Echo: two"/,
    /^breakwater_session_recoveries_total\{server="remote".*\} [1-9]/m,
    /"removed":true/,
    /slow-long-tail +conn\.latency +injected [1-9]/,
    /^slow-long-tail: passed, /m,
    /breakwater\.yaml is valid/,
  ],
  'docs/chaos.md': [/^retry-storm /m, /injected [1-9]/, /^slow-long-tail: passed, /m],
  'docs/scenarios.md': [/^retry-storm /m, /^dependency-down: passed, \d+ of \d+ assertions hold$/m],
  'docs/experiments.md': [
    /^retries +not started /m,
    /^retries: running/m,
    /^# Experiment retries$/m,
    /^unit,arm,calls,/m,
  ],
  'docs/guarded-experiments.md': [/latency\.yaml: experiment latency, 3 stages, 3 rules of its gate$/m],
  'docs/gamedays.md': [/finance\.yaml: GameDay finance-q1, 3 experiments, \d+m plus recoveries$/m],
  'docs/compare.md': [/^\*\*worse\*\*: no_retries loses: /m, /^\| all \| \d+ \| \d+ \| 0 \| 0 \| 300 \|$/m],
  'docs/configuration.md': [/reference\.yaml is valid/, /gateway\.yaml is valid/],
  'docs/security.md': [/"ok":true/],
  'docs/troubleshooting.md': [/"status":"ready"/],
}

/** The block that installs and starts everything; other blocks run while this block runs. */
export const QUICKSTART = 'npm ci && npm start\n'

export interface Typed {
  readonly page: string
  /** All runnable blocks of the page, joined. */
  readonly script: string
  readonly prints: readonly RegExp[]
}

export interface Commands {
  readonly typed: readonly Typed[]
  /** The place of each block that is not run, and the reason. */
  readonly leftOut: readonly string[]
  readonly ts: readonly string[]
  readonly python: readonly string[]
}

/** Reads all commands and programs of all pages. Fails if a text of this file is on no page. */
export async function readCommands(): Promise<Commands> {
  const pages = [...(await readPages()), ...(await Promise.all(others.map(readPage)))]
  const blocks = pages.flatMap((page) => page.blocks)
  const shell = blocks
    .filter(({ language }) => language === 'sh')
    .map((block) => ({
      ...block,
      reason: leftOut.find(({ page, text }) => page === block.page && block.text.includes(text)),
    }))
  const unused = leftOut.filter((one) => !shell.some(({ reason }) => reason === one))
  if (unused.length > 0) throw new Error(`left out, and on no page: ${JSON.stringify(unused)}`)
  if (!shell.some(({ page, text }) => page === 'README.md' && text === QUICKSTART))
    throw new Error(`no block of README.md is ${QUICKSTART}`)

  const isRun = ({ text, reason }: (typeof shell)[number]) => text !== QUICKSTART && reason === undefined
  const typed = pages.flatMap(({ path }) => {
    const script = shell
      .filter((block) => block.page === path && isRun(block))
      .map(({ text }) => text)
      .join('')
    return script === '' ? [] : [{ page: path, script, prints: told[path] ?? [] }]
  })
  const silent = Object.keys(told).filter((path) => !typed.some(({ page }) => page === path))
  if (silent.length > 0)
    throw new Error(`pages that type nothing cannot print anything: ${silent.join(', ')}`)

  const textsIn = (wanted: string) =>
    blocks.filter(({ language }) => language === wanted).map(({ text }) => text)
  return {
    typed,
    leftOut: shell.flatMap((block) =>
      block.reason === undefined || isRun(block) ? [] : [`${block.page}:${block.line}: ${block.reason.why}`],
    ),
    ts: textsIn('ts'),
    python: textsIn('python'),
  }
}

/** Returns a text with the newer package, as docs/connect.md describes. */
export const withNewerPackage = (program: string): string =>
  program.replaceAll(/'@modelcontextprotocol\/sdk\/client\/\w+\.js'/g, `'@modelcontextprotocol/client'`)

/** Returns every npm script that a text names. */
export const scriptsIn = (text: string): readonly string[] =>
  [...text.matchAll(/\bnpm (?:run )?(start|test|(?<=run )[\w:]+)/g)].map(([, name = '']) => name)

/** Returns a Python with the imports of the pages' programs: `PYTHON`, or `python3`. Undefined if none. */
export async function pythonFor(env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const { PYTHON: interpreter = 'python3' } = env
  const check = promisify(execFile)(interpreter, ['-c', 'from mcp import Client'])
  return check.then(
    () => interpreter,
    () => undefined,
  )
}
