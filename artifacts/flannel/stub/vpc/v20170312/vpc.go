// Package v20170312 stands in for Tencent Cloud's VPC client, which the module
// proxy does not serve. It declares only the names that flannel's tencent-vpc
// backend uses; each call answers that this build lacks the backend.
package v20170312

import "errors"

var errNotInThisBuild = errors.New("tencent-vpc: not supported in this build of flannel")

// Client has no connection: every request fails with the same error.
type Client struct{}

// NewClientWithSecretId refuses to make a client.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, errNotInThisBuild }

// Filter selects route tables by name.
type Filter struct {
	Name   *string
	Values []*string
}

// Route is one entry of a route table.
type Route struct {
	RouteId              *uint64
	DestinationCidrBlock *string
	GatewayId            *string
	GatewayType          *string
	RouteType            *string
	Enabled              *bool
}

// RouteTable holds the routes of a VPC.
type RouteTable struct {
	RouteTableId *string
	RouteSet     []*Route
}

// DescribeRouteTablesRequest asks for the route tables that match Filters.
type DescribeRouteTablesRequest struct{ Filters []*Filter }

// DescribeRouteTablesResponse answers a DescribeRouteTablesRequest.
type DescribeRouteTablesResponse struct {
	Response *struct{ RouteTableSet []*RouteTable }
}

// NewDescribeRouteTablesRequest makes an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// DescribeRouteTables always fails.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errNotInThisBuild
}

// RoutesRequest names routes to add to or take from a table.
type RoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// NewDeleteRoutesRequest makes an empty request.
func NewDeleteRoutesRequest() *RoutesRequest { return &RoutesRequest{} }

// NewCreateRoutesRequest makes an empty request.
func NewCreateRoutesRequest() *RoutesRequest { return &RoutesRequest{} }

// DeleteRoutes always fails.
func (*Client) DeleteRoutes(*RoutesRequest) (any, error) { return nil, errNotInThisBuild }

// CreateRoutes always fails.
func (*Client) CreateRoutes(*RoutesRequest) (any, error) { return nil, errNotInThisBuild }
