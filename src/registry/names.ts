const SCHEME = 'breakwater://'

/** A server, and a name or URI as that server knows it. */
export interface Resolved {
  readonly server: string
  readonly name: string
}

/**
 * Names on the aggregated endpoint, both ways. Tools, prompts and task ids are `{server}{separator}{name}`;
 * resource URIs are `breakwater://{server}/{uri}`, except that `ui://` URIs keep their scheme, which hosts
 * look at, and become `ui://{server}{separator}{rest}`. Templates are mapped like URIs, so that whatever
 * is put into one maps back.
 */
export class Names {
  readonly separator: string

  constructor(separator: string) {
    this.separator = separator
  }

  expose(server: string, name: string): string {
    return server + this.separator + name
  }

  resolve(exposed: string): Resolved | undefined {
    const at = exposed.indexOf(this.separator)
    if (at < 1) return undefined
    return { server: exposed.slice(0, at), name: exposed.slice(at + this.separator.length) }
  }

  exposeUri(server: string, uri: string): string {
    return uri.startsWith('ui://') ? `ui://${this.expose(server, uri.slice(5))}` : `${SCHEME}${server}/${uri}`
  }

  resolveUri(exposed: string): Resolved | undefined {
    if (exposed.startsWith('ui://')) {
      const resolved = this.resolve(exposed.slice(5))
      return resolved && { server: resolved.server, name: `ui://${resolved.name}` }
    }
    const slash = exposed.indexOf('/', SCHEME.length)
    if (!exposed.startsWith(SCHEME) || slash === -1) return undefined
    return { server: exposed.slice(SCHEME.length, slash), name: exposed.slice(slash + 1) }
  }
}
