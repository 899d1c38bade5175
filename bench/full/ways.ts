import { startMiddle, type Endpoint, type Surroundings } from '../middle.ts'
import { subjects, type Subject } from '../subjects.ts'
import type { Cell } from './cells.ts'
import { inCell, type StdioServer, policyRows } from './rows.ts'
import { nginxArgs } from './nginx.ts'
import { command, type Peer } from './peers.ts'
import { foreignListeners, freePort } from './ports.ts'
import { untilServes, type Spoken } from './serves.ts'

/** A way from the load to the server: a row of a table. */
export interface Way extends Spoken {
  readonly name: string
  readonly title: string
  readonly kind: 'reference' | 'ours' | 'peer'
  /** True: a failure ends only the row, because the run continues without foreign programs. */
  readonly mayFail: boolean
  readonly note?: string
  start(around: Around): Promise<Endpoint>
}

export interface Around extends Surroundings {
  readonly stdio: StdioServer
  /** Reports that a peer has ended. */
  readonly lost: (error: Error) => void
}

export interface Others {
  readonly nginx: string | undefined
  readonly peers: readonly Peer[]
}

/** Name and title of each row of Breakwater over HTTP, as shown beside foreign gateways. */
const ours: Readonly<Record<string, string>> = {
  bare: 'Breakwater, no policies',
  server: 'Breakwater',
  traced: 'Breakwater, traced',
  aggregate: 'Breakwater, /mcp',
  modern: 'Breakwater, modern agent',
}
const notes: Readonly<Record<string, string>> = {
  traced: 'spans and an access log line of every tenth call',
  aggregate: 'the endpoint of all servers, which rewrites names',
  modern: 'an agent of the modern era before a server of the legacy one',
}
const usual = ['bare', 'server']

export function waysOf(cell: Cell, { nginx, peers }: Others, stdio: StdioServer): Way[] {
  const breakwater = (subject: Subject, title: string): Way => {
    const { name, path, tool, era } = inCell(subject, cell, stdio)
    const note = notes[name]
    return {
      ...{ name, title, kind: 'ours', mayFail: false, path, tool, speech: era },
      ...(note !== undefined && { note }),
      start: (around) => startMiddle(inCell(subject, cell, stdio), around),
    }
  }
  const references = [reference('direct', 'direct', cell), reference('floor', 'byte proxy', cell)]
  if (cell.rows === 'policies') return [...references, ...policyRows.map((row) => breakwater(row, row.title))]
  return [
    ...references,
    ...(nginx === undefined || cell.upstream === 'stdio' ? [] : [nginxWay(nginx, cell)]),
    ...Object.entries(ours)
      .filter(([name]) => cell.rows === 'all' || usual.includes(name))
      .map(([name, title]) => breakwater(subjectNamed(name), title)),
    ...peers
      .filter(({ upstreams }) => cell.peers && upstreams.includes(cell.upstream))
      .map((peer) => peerWay(peer, cell)),
  ]
}

function subjectNamed(name: string): Subject {
  const subject = subjects.find((subject) => subject.name === name)
  if (subject === undefined) throw new Error(`no row is called ${name}`)
  return subject
}

function reference(name: string, title: string, { era, upstream }: Cell): Way {
  const subject = subjectNamed(name)
  const notes = [
    ...(name === 'floor' ? ['node:http and undici, inspects nothing'] : []),
    ...(upstream === 'stdio' ? ['before the same server over HTTP'] : []),
  ]
  return {
    ...{ name, title, kind: 'reference', mayFail: false, speech: era },
    ...{ path: subject.path, tool: subject.tool },
    ...(notes.length > 0 && { note: notes.join('; ') }),
    start: (around) => startMiddle(subject, around),
  }
}

function nginxWay(version: string, { era }: Cell): Way {
  return {
    ...{
      name: 'nginx',
      title: version,
      kind: 'reference',
      mayFail: true,
      path: '/mcp',
      tool: 'echo',
      speech: era,
    },
    note: 'one process, unbuffered, no access log',
    async start({ children, upstream, scratch, lost }) {
      const port = await freePort()
      const pid = children.program('nginx', nginxArgs(port, upstream, scratch), process.env, lost)
      return untilServes(this, { origin: `http://127.0.0.1:${port}`, pid })
    },
  }
}

function peerWay(peer: Peer, cell: Cell): Way {
  const { name, version, path, tool, speech, note } = peer
  return {
    ...{ name, title: `${name} ${version}`, kind: 'peer', mayFail: true, path, tool, speech, note },
    async start({ children, upstream, stdio, scratch, lost }) {
      const port = await freePort()
      const site = { port, scratch, upstream: cell.upstream === 'stdio' ? stdio : { url: `${upstream}/mcp` } }
      const { args, env } = command(peer, site)
      const pid = children.program(process.execPath, args, env, lost)
      const endpoint = await untilServes(this, { origin: `http://127.0.0.1:${port}`, pid })
      const foreign = foreignListeners(pid)
      if (foreign.length > 0) throw new Error(`listens outside of loopback: ${foreign.join(', ')}`)
      return endpoint
    },
  }
}
