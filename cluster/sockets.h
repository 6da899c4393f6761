/* SPDX-License-Identifier: MIT
 *
 * Addresses and sockets of the rendezvous: TCP between hosts, and within a host a Unix socket with a name that no file
 * has (it ends with its owner). All are closed on exec and in forked
 * children, and do not block.
 */
#ifndef EO_CLUSTER_SOCKETS_H
#define EO_CLUSTER_SOCKETS_H

#include <sys/socket.h>
#include <sys/un.h>

#include <evenodd/log.h>
#include <evenodd/status.h>

#include "cluster/node.h"
#include "cluster/seal.h"

struct eo_address {
    struct sockaddr_storage storage;
    socklen_t bytes;
};

/* All addresses that the name has, as IPv4 and IPv6. */
enum { EO_ADDRESSES_MAX = 8 };
struct eo_addresses {
    struct eo_address all[EO_ADDRESSES_MAX];
    uint32_t count;
};

/* EO_IN_PROGRESS: the name is not known, or not yet; *why says so. Refuses wildcards. EO_ERR_INVALID, EO_ERR_IO; logged. */
EO_NODISCARD eo_status eo_address_resolve(struct eo_addresses *out, const char *name, const char *port, const char **why,
                                          const eo_log *log);
bool eo_address_is_loopback(const struct eo_address *address);
void eo_address_text(const struct eo_address *address, char *text, size_t bytes);
struct eo_endpoint eo_address_endpoint(const struct eo_address *address);
struct eo_address eo_address_of_endpoint(const struct eo_endpoint *endpoint);
/* The name under which the ranks of `host` that are in the same job meet: nobody guesses it who has no token. */
struct eo_address eo_address_within_host(const struct eo_secret *secret, const char *host, const char *address,
                                         const char *port);

/* A listening socket, -1: errno says why. Port 0: any, and *address gets it. */
int eo_socket_listen(struct eo_address *address);
/* A socket that is being connected, -1: errno. */
int eo_socket_dial(const struct eo_address *address);
/* The one that has come, -1: none. Of a Unix socket only processes of this user are taken. */
int eo_socket_accept(int listener, char *name, size_t bytes);
/* Whether the other end of a Unix socket is a process of this user; *user is whose it is. */
bool eo_socket_is_own(int fd, uint32_t *user);
/* What a socket that was connecting came to: 0 or an errno. */
int eo_socket_error(int fd);
/* Instead of close. */
void eo_socket_close(int fd);
/* Data that nobody acknowledges for so long end the connection. */
void eo_socket_set_timeout(int fd, uint32_t timeout_ms);

#endif
