import { createHash, randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import type { Approval } from '../../../src/approval/approval.ts'
import { newKey, openPrivateKey, sign } from '../../../src/approval/keys.ts'
import { FlakyServer } from '../support/flaky.ts'
import { Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { partsWith, specOf } from '../experiments/scene.ts'

export const PASSPHRASE = 'a passphrase of tests'

/** A person with a key. */
export interface Person {
  readonly name: string
  readonly pem: string
  readonly publicText: string
  signature(kind: 'envelope' | 'approval' | 'lift', value: unknown): Json
}

export function person(name: string): Person {
  const { pem, publicText } = newKey(PASSPHRASE)
  const key = openPrivateKey(pem, PASSPHRASE)!
  return { name, pem, publicText, signature: (kind, value) => ({ ...sign(kind, value, key, name) }) }
}

export const tokens = {
  writer: 'token-of-the-writing-agent',
  reader: 'token-of-the-reading-agent',
  other: 'token-of-another-agent',
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

export const controlMcpOf = (people: readonly Person[], more: Json = {}): Json => ({
  listen: '127.0.0.1:0',
  tokens: [
    { name: 'writer', sha256: sha256(tokens.writer), tools: 'write' },
    { name: 'reader', sha256: sha256(tokens.reader) },
    { name: 'other', sha256: sha256(tokens.other), tools: 'write' },
  ],
  trust: people.map(({ name, publicText: key }) => ({ name, key })),
  ...more,
})

/** Agents enough that the limit of requests a second refuses no request of a test. */
export const manyAgents = Array.from({ length: 29 }, (_, at) => ({
  name: `agent-${at}`,
  token: `secret-of-agent-${at}`,
}))

/** The settings of these agents. */
export const manyTokens = manyAgents.map(({ name, token }) => ({
  name,
  sha256: sha256(token),
  tools: 'write',
}))

/** What a tool answered: its data, or its error. */
export interface Told {
  readonly text: string
  readonly data: Json
  readonly error:
    | {
        code: string
        message: string
        began: unknown
        repeat: string
        retryAfterMs?: number
        exceeded?: Json[]
      }
    | undefined
  readonly bytes: number
}

/** A client of the control MCP server, by the official SDK. */
export class Asker {
  readonly client: Client

  private constructor(client: Client) {
    this.client = client
  }

  static async open(url: string, token: string = tokens.writer): Promise<Asker> {
    const client = new Client({ name: 'tests', version: '0' }, { versionNegotiation: { mode: 'auto' } })
    const requestInit = { headers: { authorization: `Bearer ${token}` } }
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }))
    return new Asker(client)
  }

  async call(name: string, given: Json = {}): Promise<Told> {
    const result = await this.client.callTool({ name, arguments: given })
    const [first] = result.content as { text: string }[]
    const text = first?.text ?? ''
    const error = result.isError === true ? (JSON.parse(text) as Told['error']) : undefined
    return {
      text,
      error,
      data: (result.structuredContent ?? {}) as Json,
      bytes: Buffer.byteLength(JSON.stringify(result)),
    }
  }
}

export interface Scene {
  gateway: Gateway
  readonly server: FlakyServer
  readonly folder: string
  readonly parts: GatewayParts
  readonly alice: Person
  url: string
  /** Starts the same gateway again, in the same folder. */
  again(parts?: GatewayParts): Promise<void>
}

/** Starts a gateway with a control MCP server, and a person it trusts. */
export async function opened(more: Partial<GatewayParts> = {}, controlMcp: Json = {}): Promise<Scene> {
  const folder = await newFolder()
  const server = await FlakyServer.start()
  const alice = person('alice')
  const parts = partsWith(folder, server.url, {
    ...more,
    gateway: {
      environment: 'staging',
      stateDir: join(folder, 'state'),
      controlMcp: controlMcpOf([alice], controlMcp),
      ...more.gateway,
    },
  })
  const gateway = await Gateway.start(parts, { folder })
  await gateway.waitFor('up', ...Object.keys(parts.servers))
  const scene: Scene = {
    gateway,
    server,
    folder,
    parts,
    alice,
    url: urlOf(gateway),
    async again(changed = parts) {
      scene.gateway = await Gateway.start(changed, { folder })
      scene.url = urlOf(scene.gateway)
      await scene.gateway.waitFor('up', ...Object.keys(changed.servers))
    },
  }
  return scene
}

export function urlOf(gateway: Gateway): string {
  const line = gateway.log.find(({ controlMcp }) => typeof controlMcp === 'string')
  return String(line?.controlMcp)
}

interface Overview {
  readonly gateway: string
  readonly targets: readonly { server: string; identity: string; tools: { tool: string; effect: string }[] }[]
}

/** Returns an envelope for the tool `read` of the server `flaky`. */
export async function envelopeOf({ gateway }: Scene, more: Json = {}): Promise<Json> {
  const { body } = await gateway.admin<Overview>('/admin/envelopes')
  const [target] = body.targets.filter(({ server }) => server === 'flaky')
  const now = Date.now()
  return {
    format: 1,
    id: `env-${randomBytes(4).toString('hex')}`,
    gateway: body.gateway,
    environment: 'staging',
    notBefore: new Date(now - 60_000).toISOString(),
    expiresAt: new Date(now + 3_600_000).toISOString(),
    proposers: ['writer'],
    targets: [{ server: 'flaky', identity: target!.identity, tools: ['read'] }],
    effects: ['read_only'],
    faults: [{ type: 'rpc.error', maxRate: 1 }],
    ladder: [0.25, 0.5],
    maxStage: '1m',
    maxRun: '2m',
    gate: ['error_ratio < 10% for 500ms'],
    gateWindow: { over: '1s', minimum: 4, missing: '5s' },
    budget: { runs: 10, perDay: 10, aborts: 10 },
    ...more,
  }
}

export const install = ({ gateway, alice }: Scene, envelope: Json, signer = alice) =>
  gateway.post<Json>('/admin/envelopes', { envelope, signature: signer.signature('envelope', envelope) })

/** Signs the approval of a proposal. `change` alters the document before signing. */
export async function approve(
  { gateway, alice }: Scene,
  proposal: string,
  { change = {}, signer = alice }: { readonly change?: Json; readonly signer?: Person } = {},
) {
  const { body } = await gateway.admin<{ approval: Approval }>(`/admin/proposals/${proposal}`)
  const approval = { ...body.approval, ...change }
  return gateway.post<Json>('/admin/proposals/approve', {
    approval,
    signature: signer.signature('approval', approval),
  })
}

/** A spec inside the envelope of `envelopeOf`: the first rung. */
export const insideSpec = (more: Json = {}): Json =>
  specOf({ arms: undefined, stages: [{ share: '25%', duration: '1s' }], ...more })

export const propose = (asker: Asker, spec: Json = insideSpec(), more: Json = {}) =>
  asker.call('propose_run', { spec, why: 'to see what happens', ...more })
