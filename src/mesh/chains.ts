/** How many look-ups and chains are remembered; past it they are worked out again. */
const REMEMBERED = 4096

/** The same for tools that stand in a catalog, and so cannot be invented. */
const REMEMBERED_TOOLS = 50_000

/** Longest look-up that is remembered, in characters: agents choose methods and names, and may choose huge ones. */
const LONGEST = 512

/** What calls ask for. */
export interface Asked {
  readonly server: string
  readonly method: string
  readonly tool: string | undefined
}

/** The chains of one policy set that were built, found again quickly and forgotten when there are too many. */
export class Chains<Chain> {
  readonly #listed = new Map<string, Map<string, Chain>>()
  readonly #shared = new Map<string, Chain>()
  readonly #remembered = new Map<string, Chain>()

  /** The chain of a tool that stands in its server's catalog: one of its own. */
  ofListed(server: string, tool: string, build: () => Chain): Chain {
    let tools = this.#listed.get(server)
    if (tools === undefined) this.#listed.set(server, (tools = new Map<string, Chain>()))
    let chain = tools.get(tool)
    if (chain !== undefined) return chain
    chain = build()
    remember(tools, tool, chain, REMEMBERED_TOOLS)
    return chain
  }

  /** Agents can ask for what does not exist: such calls share a chain, and so what its policies remember. */
  ofOther<Applied extends readonly number[]>(
    { server, method, tool }: Asked,
    appliedTo: () => Applied,
    build: (applied: Applied) => Chain,
  ): Chain {
    const key = `${server}\n${method.length}${tool === undefined ? ':' : '='}${method}${tool ?? ''}`
    let chain = this.#remembered.get(key)
    if (chain !== undefined) return chain
    const applied = appliedTo()
    const shared = `${server}\n${applied.join()}`
    chain = this.#shared.get(shared) ?? build(applied)
    remember(this.#shared, shared, chain, REMEMBERED)
    if (key.length <= LONGEST) remember(this.#remembered, key, chain, REMEMBERED)
    return chain
  }
}

function remember<Chain>(chains: Map<string, Chain>, key: string, chain: Chain, most: number): void {
  if (chains.size >= most) chains.clear()
  chains.set(key, chain)
}
